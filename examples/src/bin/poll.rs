//! The program of the README, line for line: a test holds the two together.

use serde::{Deserialize, Serialize};
use session_openraft::Node;
use session_runtime::{Context, Deterministic, Rejection, SessionId, State, Timestamp, state_machine};
use std::collections::BTreeMap;

#[state_machine]
enum PollCommand {
    Vote { choice: String },
    Close,
}

/// What the poll may tell a client: a server request.
#[derive(Debug, PartialEq, Serialize, Deserialize, Deterministic)]
enum Notice {
    Closed { votes: BTreeMap<String, u64> },
}

#[derive(Debug, PartialEq, Serialize, Deserialize, Deterministic, Rejection)]
enum Refused {
    NotAClient,
    TooLate,
}

#[derive(Default, State)]
struct Poll {
    ends: Option<Timestamp>,
    choices: BTreeMap<SessionId, String>,
}

#[state_machine(command = PollCommand, server_request = Notice)]
impl Poll {
    /// The first vote opens the poll for a minute. Who votes again has thought again.
    fn vote(&mut self, cx: &mut Context<'_, Notice>, choice: String) -> Result<(), Refused> {
        let voter = cx.session().ok_or(Refused::NotAClient)?;
        let ends = *self.ends.get_or_insert(cx.now().saturating_add(60_000));
        if cx.now() > ends {
            return Err(Refused::TooLate);
        }
        self.choices.insert(voter, choice);
        Ok(())
    }

    /// The service's own command: clients may not send it.
    #[internal]
    fn close(&mut self, cx: &mut Context<'_, Notice>) -> BTreeMap<String, u64> {
        self.ends = None;
        let choices = std::mem::take(&mut self.choices);
        let mut votes = BTreeMap::<String, u64>::new();
        for choice in choices.values() {
            let count = votes.entry(choice.clone()).or_default();
            *count = count.saturating_add(1);
        }
        for voter in choices.keys() {
            cx.send(*voter, Notice::Closed { votes: votes.clone() });
        }
        votes
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Makes the directory the first time, goes on where it stopped every other time.
    let node = Node::<Poll>::open("poll-data").await?;
    // A session. Server requests come from it, so it is kept, and the typed client borrows it.
    let client = node.client().await?;
    let poll = PollClient::new(&client);
    poll.vote("tea".to_owned()).await?;

    let votes: BTreeMap<String, u64> = node.internal(&PollCommand::Close).await?.read()?;
    println!("the poll is closed: {votes:?}");
    if let Some((id, notice)) = client.server_request().await {
        println!("server request {}: {notice:?}", id.0);
    }
    node.shutdown().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use session_runtime::testing::{TestContext, check};

    #[test]
    fn a_vote_is_counted_and_the_voter_told() {
        let ann = SessionId(1);
        let mut log = TestContext::new().open(ann).of(ann).at(5_000);
        let mut poll = Poll::default();
        assert_eq!(poll.vote(&mut log.context(), "tea".to_owned()), Ok(()));
        let mut log = log.at(65_001);
        assert_eq!(poll.vote(&mut log.context(), "milk".to_owned()), Err(Refused::TooLate));
        let votes = poll.close(&mut log.context());
        assert_eq!(votes, BTreeMap::from([("tea".to_owned(), 1)]));
        assert_eq!(log.sent().unwrap(), [(ann, Notice::Closed { votes })]);
    }

    /// A hundred histories with lost messages, crashes and changes of leader.
    #[test]
    fn histories() {
        check::<Poll>(|dice| PollCommand::Vote { choice: dice.below(3).to_string() });
    }
}
