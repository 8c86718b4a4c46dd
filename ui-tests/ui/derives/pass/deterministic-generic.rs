#![deny(warnings)]
use session_runtime::{Deterministic, Rejection};
use std::collections::BTreeMap;
use std::marker::PhantomData;

#[derive(serde::Serialize, serde::Deserialize, Deterministic)]
pub struct Pair<K: Ord, V, const N: usize>
where
    V: Clone,
{
    map: BTreeMap<K, Vec<V>>,
    nothing: PhantomData<[u8; N]>,
}

#[derive(Deterministic)]
pub enum Tree<T> {
    Leaf(T),
    Node(Box<Tree<T>>, Vec<Self>),
}

#[derive(serde::Serialize, serde::Deserialize, Deterministic, Rejection)]
pub enum Refused<T> {
    TooMuch(T),
}

fn is_deterministic<T: Deterministic>() {}
fn is_rejection<T: Rejection>() {}

fn main() {
    is_deterministic::<Pair<u64, String, 3>>();
    is_deterministic::<Tree<u64>>();
    is_rejection::<Refused<u64>>();
}
