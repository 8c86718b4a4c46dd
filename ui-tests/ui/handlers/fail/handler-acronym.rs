use session_runtime::{State, state_machine};

#[state_machine]
enum Ask {
    SetHTTPProxy { on: bool },
}

#[derive(Default, State)]
struct Machine {
    value: u64,
}

#[state_machine(command = Ask)]
impl Machine {
    fn set_http_proxy(&mut self, on: bool) {
        self.value = on.into();
    }
}

fn main() {}
