//! `gen` is a keyword of the next edition, and a name like any other in this one.

use session_runtime::{State, state_machine};

#[state_machine]
enum CounterCommand {
    Gen { gen: u64 },
    Add(u64),
}

#[derive(Default, State)]
struct Counter {
    gen: u64,
}

#[state_machine(command = CounterCommand)]
impl Counter {
    fn gen(&mut self, gen: u64) -> u64 {
        self.gen = gen;
        gen
    }

    fn add(&mut self, gen: u64) -> u64 {
        self.gen = self.gen.saturating_add(gen);
        self.gen
    }

    #[query]
    fn least(&self, gen: u64) -> u64 {
        self.gen.min(gen)
    }
}

#[test]
fn a_name_of_this_edition_is_kept() {
    let mut counter = Counter::default();
    counter.gen(2);
    assert_eq!(counter.add(3), 5);
    assert_eq!(counter.least(4), 4);
    assert_eq!(Counter::SCHEMA.commands[0].to_string(), "Gen { gen: u64 }");
    assert_eq!(Counter::SCHEMA.queries[0].to_string(), "Least { gen: u64 }");
}
