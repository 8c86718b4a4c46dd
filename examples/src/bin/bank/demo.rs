//! The piece: a bank that is killed at the worst moment, and a client that asks again.

use crate::machine::{Bank, BankClient, Refused};
use crate::notebook;
use session_openraft::{Node, NodeClient};
use std::error::Error;
use std::path::Path;
use std::time::Duration;
use std::{env, fs, process};

pub(crate) async fn play() -> Result<(), Box<dyn Error>> {
    let room = tempfile::tempdir()?;
    let (dir, saved) = (room.path().join("bank"), room.path().join("ann"));

    println!("A bank opens. What it answers is on disk before it is said.");
    let node = Node::<Bank>::open(&dir).await?;
    let client = node.client().await?;
    // Ann writes down what she is about to ask before she asks it, so that she can go on after a crash.
    let ann = BankClient::new(client.saving(|bytes| notebook::store(&saved, bytes)));
    let account = ann.open("Ann".to_owned()).await?;
    println!("Ann opens account {account} and pays in 100.");
    println!("  the bank says: {} in the account", ann.deposit(account, 100).await?);
    drop(client);
    node.shutdown().await;

    println!(
        "She withdraws 30. The money is taken, and before a word of it gets out, the bank's process aborts."
    );
    let killed = process::Command::new(env::current_exe()?)
        .arg("--dir")
        .arg(&dir)
        .args(["crash", &account.to_string(), "30"])
        .arg(&saved)
        .status()?;
    if killed.code().is_some() {
        return Err(format!("the bank did not get as far as that: {killed}").into());
    }
    println!("  the bank's process is dead: {killed}");

    println!("The bank starts again, from its disk.");
    let node = Node::<Bank>::open(&dir).await?;
    println!(
        "  its books say {}: the withdrawal was made, and Ann does not know it",
        balance(&node, account)
    );

    println!(
        "Ann starts again, too. Her notebook says that her last request has no answer, so she sends it again."
    );
    let bytes = fs::read(&saved)?;
    println!("  the bank says: {} in the account", asked_again(&node.resume(&bytes).await?).await?);

    println!("That answer is lost on its way, and the next four as well. She asks and asks.");
    let mut answers = Vec::new();
    for _ in 0..5 {
        answers.push(asked_again(&node.resume(&bytes).await?).await?.to_string());
    }
    println!("  the bank says: {}", answers.join(", "));

    println!("The bank replaces its log by a snapshot and restarts. It has not forgotten what it told her.");
    node.snapshot().await?;
    node.shutdown().await;
    let node = Node::<Bank>::open(&dir).await?;
    println!("  the bank says: {} in the account", asked_again(&node.resume(&bytes).await?).await?);

    println!("Ann asked 8 times for the same 30, and was paid once: {} are left.", balance(&node, account));
    node.shutdown().await;
    Ok(())
}

/// The bank's own books, without asking it as a client would.
fn balance(node: &Node<Bank>, account: u64) -> u64 {
    node.inspect(|bank| bank.machine().balance(account)).unwrap_or_default()
}

/// The answer to the request that was under way when the client was saved.
async fn asked_again(client: &NodeClient<Bank>) -> Result<u64, Box<dyn Error>> {
    let (_request, answer) = client.recovered().await.ok_or("nothing was under way")?;
    let withdrawn = answer?.read::<Result<u64, Refused>>()?;
    withdrawn.map_err(|refused| refused.to_string().into())
}

/// Withdraws, and aborts when the money is taken and before the answer is heard.
pub(crate) async fn crash(
    node: &Node<Bank>,
    account: u64,
    amount: u64,
    saved: &Path,
) -> Result<(), Box<dyn Error>> {
    let client = node.resume(&fs::read(saved)?).await?;
    let ann = BankClient::new(client.saving(|bytes| notebook::store(saved, bytes)));
    let before = balance(node, account);
    tokio::select! {
        biased;
        () = taken(node, account, before) => {}
        _unheard = ann.withdraw(account, amount) => {}
    }
    process::abort()
}

async fn taken(node: &Node<Bank>, account: u64, before: u64) {
    while balance(node, account) == before {
        tokio::time::sleep(Duration::from_micros(50)).await;
    }
}
