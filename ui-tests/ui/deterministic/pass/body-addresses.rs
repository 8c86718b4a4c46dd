use session_runtime::{State, state_machine};

#[state_machine]
enum Ask {
    Add { amount: u64 },
}

#[derive(Default, State)]
struct Machine {
    value: u64,
}

#[state_machine(command = Ask)]
impl Machine {
    fn add(&mut self, amount: u64) -> u64 {
        use std::net;
        let address = std::net::IpAddr::from([127, 0, 0, 1]);
        let other = net::Ipv6Addr::LOCALHOST;
        amount.max(u64::from(address.is_loopback() && other.is_loopback()))
    }
}

fn main() {}
