//! A bank in one process, with a log on disk: the embedded default.
//!
//! Without arguments it plays a short piece and says what it shows: the bank is killed in the middle of a withdrawal, the
//! client asks again and again, and is paid once. With a subcommand it is a bank to play with:
//!
//! ```text
//! cargo run --bin bank -- open Ann
//! cargo run --bin bank -- deposit 1 100
//! cargo run --bin bank -- watch 1
//! cargo run --bin bank -- withdraw 1 30
//! cargo run --bin bank -- watch 1
//! cargo run --bin bank -- list
//! ```

mod demo;
mod machine;

use clap::{Parser, Subcommand};
use machine::{Bank, BankClient, BankCommand, Notice};
use session_openraft::{Config, Node};
use session_runtime::client::ClientError;
use session_runtime::{RetryPolicy, codec};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How long to wait for what should come at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// A bank whose clients may ask again: every command runs once.
#[derive(Parser)]
struct Arguments {
    /// Where the bank keeps its log.
    #[arg(long, default_value = "bank-data")]
    dir: PathBuf,
    /// What to do; nothing: play the piece, in a directory of its own.
    #[command(subcommand)]
    command: Option<Todo>,
}

#[derive(Subcommand)]
enum Todo {
    /// Open an account.
    Open { owner: String },
    /// Pay in.
    Deposit { account: u64, amount: u64 },
    /// Take out.
    Withdraw { account: u64, amount: u64 },
    /// Tell what happened to an account since the last time, and go on watching it.
    Watch { account: u64 },
    /// List the accounts.
    List,
    /// Close an account, as the operator.
    Close { account: u64 },
    /// The part of the piece in which the bank is killed.
    #[command(hide = true)]
    Crash { account: u64, amount: u64, client: PathBuf },
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { dir, command } = Arguments::parse();
    let Some(command) = command else {
        return demo::play().await;
    };
    // A reader who plays waits for notices: what is not acknowledged is sent again soon.
    let retry = RetryPolicy { min_age: 100, max_age: 200, ..RetryPolicy::default() };
    let node = Node::<Bank>::open_with(Config { retry, ..Config::new(&dir) }).await?;
    let done = perform(&node, &dir, command).await;
    node.shutdown().await;
    done
}

async fn perform(node: &Node<Bank>, dir: &Path, command: Todo) -> Result<(), Box<dyn Error>> {
    // A session for as long as this process runs. One that must outlive it is saved: see `watch`.
    let client = node.client().await?;
    let bank = BankClient::new(&client);
    match command {
        Todo::Open { owner } => println!("account {}", bank.open(owner).await?),
        Todo::Deposit { account, amount } => said(bank.deposit(account, amount).await)?,
        Todo::Withdraw { account, amount } => said(bank.withdraw(account, amount).await)?,
        Todo::Watch { account } => watch(node, &dir.join("watcher"), account).await?,
        Todo::List => {
            for (account, owner, balance) in bank.accounts().await? {
                println!("account {account} of {owner} holds {balance}");
            }
        }
        Todo::Close { account } => {
            let response = node.internal(&BankCommand::Close { account }).await?;
            match codec::decode::<Option<u64>>(&response.payload)? {
                Some(balance) => println!("account {account} held {balance} and is closed"),
                None => println!("there is no account {account}"),
            }
        }
        Todo::Crash { account, amount, client } => demo::crash(node, account, amount, &client).await?,
    }
    client.close().await;
    Ok(())
}

/// The bank's word: a balance, or why it refuses. Every other error is an error of this program.
fn said(answer: Result<u64, ClientError<machine::Refused>>) -> Result<(), Box<dyn Error>> {
    match answer {
        Ok(balance) => println!("the account holds {balance}"),
        Err(ClientError::Rejected(refused)) => println!("the bank refuses: {refused:?}"),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Watches with a session that outlives the process, so that what happens in between is kept for it.
async fn watch(node: &Node<Bank>, saved: &Path, account: u64) -> Result<(), Box<dyn Error>> {
    let client = match fs::read(saved) {
        Ok(bytes) => match node.resume(&bytes).await {
            Ok(client) => client,
            Err(_) => node.client().await?, // It was away for too long, and must begin anew.
        },
        Err(_) => node.client().await?,
    };
    let store = |bytes: &[u8]| fs::write(saved, bytes);
    let answer = BankClient::new(client.saving(store)).watch(account).await;
    match answer {
        Ok(()) => println!("watching account {account}"),
        Err(ClientError::Rejected(refused)) => println!("the bank refuses: {refused:?}"),
        Err(error) => return Err(error.into()),
    }
    let session = client.session().ok_or("the session is over")?;
    let unacknowledged = || node.inspect(|bank| bank.pending_requests(session).count());
    for _ in 0..unacknowledged() {
        let Ok(Some((_, notice))) = timeout(PATIENCE, client.server_request()).await else { break };
        let Notice::BalanceChanged { account, balance } = notice;
        println!("account {account} came to hold {balance}");
    }
    // What was printed must not come again, and what was not must: the bytes say up to where. Only when they are stored
    // does the bank hear of it.
    store(&client.save(1)?)?;
    client.saved();
    let heard = async {
        while unacknowledged() > 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, heard).await.ok();
    Ok(())
}
