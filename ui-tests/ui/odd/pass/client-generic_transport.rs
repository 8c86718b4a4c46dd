#![deny(warnings)]
use session_runtime::client::{Call, ClientError};
use session_runtime::{Bytes, Response, State, state_machine};
use std::sync::Arc;

#[state_machine]
pub enum Ask {
    Add { amount: u64 },
}

#[derive(Default, State)]
pub struct Machine {
    value: u64,
}

#[state_machine(command = Ask)]
impl Machine {
    fn add(&mut self, amount: u64) -> u64 {
        self.value.max(amount)
    }

    #[query]
    fn value(&self) -> u64 {
        self.value
    }
}

#[derive(Clone, Debug)]
struct Nobody;

impl Call for Nobody {
    async fn command(&self, _: Bytes) -> Result<Response, ClientError> {
        Err(ClientError::NotSent("nobody is there".to_owned()))
    }

    async fn query(&self, _: Bytes) -> Result<Bytes, ClientError> {
        Err(ClientError::TimedOut)
    }
}

async fn both<C: Call>(client: &MachineClient<C>) -> (Result<u64, ClientError>, Result<u64, ClientError>) {
    (client.add(1).await, client.value().await)
}

fn spawn(future: impl std::future::Future + Send + 'static) {
    drop(future);
}

fn main() {
    let client = MachineClient::new(Arc::new(Nobody));
    let copy = client.clone();
    spawn(async move { both(&copy).await });
    spawn(async move { both(&MachineClient::new(Nobody)).await });
    let _ = format!("{client:?}");
}
