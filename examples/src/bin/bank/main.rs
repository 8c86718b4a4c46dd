//! A bank in one process, with a log on disk: the embedded default.
//!
//! Without arguments it plays a short piece and says what it shows: the bank's process aborts in the middle of a
//! withdrawal, the client asks again and again, and is paid once. With a command it is a bank to play with:
//!
//! ```text
//! cargo run --bin bank -- open Ann
//! cargo run --bin bank -- deposit 1 100
//! cargo run --bin bank -- watch 1
//! cargo run --bin bank -- withdraw 1 30
//! cargo run --bin bank -- watch 1
//! cargo run --bin bank -- list
//! cargo run --bin bank -- close 1
//! ```
//!
//! A refusal is printed, and the exit code is 1.

mod demo;
mod machine;
mod notebook;

use clap::{Parser, Subcommand};
use machine::{Bank, BankClient, BankCommand, Notice, Refused};
use session_openraft::{Config, Node, NodeClient};
use session_runtime::client::ClientError;
use session_runtime::{RetryPolicy, codec};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How long to wait for what should come at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// A bank whose clients may ask again: every command runs once.
#[derive(Parser)]
#[command(
    after_help = "Without a command it plays a short piece, in a directory of its own: the bank's process aborts in \
                  the middle of a withdrawal, the client asks again and again, and is paid once."
)]
struct Arguments {
    /// Where the bank keeps its log.
    #[arg(long, default_value = "bank-data")]
    dir: PathBuf,
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
    /// Tell what happened to an account since it was last watched. Until the next time, the bank keeps what happens.
    Watch { account: u64 },
    /// List the accounts.
    List,
    /// Close an account, as the operator.
    Close { account: u64 },
    /// The part of the piece in which the bank's process aborts.
    #[command(hide = true)]
    Crash { account: u64, amount: u64, client: PathBuf },
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(Arguments { dir, command }: Arguments) -> Result<(), Box<dyn Error>> {
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
    let done = ask(node, dir, command, BankClient::new(&client)).await;
    client.close().await;
    done
}

async fn ask(
    node: &Node<Bank>,
    dir: &Path,
    command: Todo,
    bank: BankClient<&NodeClient<Bank>>,
) -> Result<(), Box<dyn Error>> {
    match command {
        Todo::Open { owner } => println!("account {}", bank.open(owner).await?),
        Todo::Deposit { account, amount } => {
            println!("the account holds {}", bank.deposit(account, amount).await.map_err(in_words)?);
        }
        Todo::Withdraw { account, amount } => {
            println!("the account holds {}", bank.withdraw(account, amount).await.map_err(in_words)?);
        }
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
                None => return Err(in_words(ClientError::Rejected(Refused::NoSuchAccount))),
            }
        }
        Todo::Crash { account, amount, client } => demo::crash(node, account, amount, &client).await?,
    }
    Ok(())
}

/// Why the bank refuses, as a sentence. Every other error is one already.
fn in_words(error: ClientError<Refused>) -> Box<dyn Error> {
    match error {
        ClientError::Rejected(refused) => format!("the bank refuses: {refused}").into(),
        error => error.into(),
    }
}

/// Watches with a session that outlives the process, so that what happens in between is kept for it.
async fn watch(node: &Node<Bank>, saved: &Path, account: u64) -> Result<(), Box<dyn Error>> {
    let client = match fs::read(saved) {
        Ok(bytes) => match node.resume(&bytes).await {
            Ok(client) => client,
            Err(error) => {
                eprintln!("what happened since the last time is not known: {error}");
                node.client().await?
            }
        },
        Err(_) => node.client().await?,
    };
    let store = |bytes: &[u8]| notebook::store(saved, bytes);
    BankClient::new(client.saving(store)).watch(account).await.map_err(in_words)?;
    println!("watching account {account}");
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
