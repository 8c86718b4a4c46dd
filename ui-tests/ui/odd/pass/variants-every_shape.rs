#![deny(warnings)]
use session_runtime::{Command, RaftAction, SessionStateMachine, State, Timestamp, state_machine};

#[state_machine]
#[derive(Debug, Clone, PartialEq)]
pub enum ShapeCommand {
    Unit,
    Tuple(u64, String),
    Struct { a: u64, b: Option<String> },
    EmptyTuple(),
    EmptyStruct {},
    Nested(Box<ShapeCommand>),
}

#[derive(Default, State)]
pub struct Shape {
    calls: u64,
}

#[state_machine(command = ShapeCommand)]
impl Shape {
    fn unit(&mut self) {
        self.calls = self.calls.saturating_add(1);
    }

    fn tuple(&mut self, number: u64, _: String) -> u64 {
        number
    }

    fn r#struct(&mut self, a: u64, mut b: Option<String>) -> Option<String> {
        self.calls = a;
        b.take()
    }

    fn empty_tuple(&self) {}

    fn empty_struct(&self) -> (u64,) {
        (self.calls,)
    }

    fn nested(&mut self, command: Box<ShapeCommand>) -> bool {
        *command == ShapeCommand::Unit
    }
}

fn main() {
    let mut machine = SessionStateMachine::new(Shape::default());
    let commands = [
        ShapeCommand::Unit,
        ShapeCommand::Tuple(1, "a".to_owned()),
        ShapeCommand::Struct { a: 1, b: None },
        ShapeCommand::EmptyTuple(),
        ShapeCommand::EmptyStruct {},
        ShapeCommand::Nested(Box::new(ShapeCommand::Unit)),
    ];
    for (index, command) in (1..).zip(commands) {
        assert_eq!(ShapeCommand::decode(&command.encode()), Ok(command.clone()));
        let payload = command.encode();
        let out = machine.apply(index, Timestamp(0), RaftAction::InternalCommand { payload });
        assert!(format!("{out:?}").contains("Accepted"), "{out:?}");
    }
}
