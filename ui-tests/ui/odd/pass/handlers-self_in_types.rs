#![deny(warnings)]
use session_runtime::{Deterministic, State, state_machine};
use serde::{Deserialize, Serialize};

#[state_machine]
pub enum TreeCommand {
    Graft { tree: Box<Tree>, trees: Vec<Tree> },
}

#[derive(Clone, Default, Serialize, Deserialize, Deterministic, State)]
pub struct Tree {
    children: Vec<Tree>,
}

#[state_machine(command = TreeCommand)]
impl Tree {
    fn graft(&mut self, tree: Box<Self>, trees: Vec<Self>) -> Option<Self> {
        self.children.extend(trees);
        self.children.push(*tree);
        self.children.first().cloned()
    }

    #[query]
    fn child(&self, like: Self) -> Option<Self> {
        self.children.get(like.children.len()).cloned()
    }
}

fn main() {}
