//! Generated dispatch against a hand-written match, in instructions.
//!
//! `cargo run --release -p session-bench --bin dispatch` runs itself under valgrind, which counts instructions
//! and not seconds, so the figures are the same on a busy machine. Both sides call the same handlers with the
//! same commands and encode the same answers; what differs is who wrote the match.

use session_runtime::testing::TestContext;
use session_runtime::{
    Context, Deterministic, EncodeError, Never, Rejection, Reply, Response, State, StateMachine,
    state_machine,
};
use std::error::Error;
use std::process::Command;

/// 24 commands of every shape.
#[state_machine]
#[derive(Clone)]
enum ShopCommand {
    Open { account: u64, amount: u64 },
    Close(u64),
    Deposit,
    Withdraw { name: String },
    Transfer { account: u64, amount: u64 },
    Freeze(u64),
    Thaw,
    Rename { name: String },
    Watch { account: u64, amount: u64 },
    Unwatch(u64),
    Audit,
    Count { name: String },
    Tag { account: u64, amount: u64 },
    Untag(u64),
    Lock,
    Unlock { name: String },
    Raise { account: u64, amount: u64 },
    Lower(u64),
    Swap,
    Rotate { name: String },
    Mark { account: u64, amount: u64 },
    Clear(u64),
    Note,
    Ping { name: String },
}

/// Why a handler may refuse.
#[derive(serde::Serialize, serde::Deserialize, Deterministic, Rejection)]
enum Refused {
    Never,
}

#[derive(Default, State)]
struct Shop {
    total: u64,
}

impl Shop {
    fn step(&mut self, one: u64, other: u64) -> u64 {
        self.total = self.total.wrapping_add(one).rotate_left(5) ^ other;
        self.total
    }
}

#[state_machine(command = ShopCommand)]
#[allow(clippy::needless_pass_by_value, clippy::unnecessary_wraps)] // handlers of every shape
impl Shop {
    fn open(&mut self, account: u64, amount: u64) -> u64 {
        self.step(account, amount)
    }

    fn close(&mut self, account: u64) -> Result<u64, Refused> {
        if account == 1001 { Err(Refused::Never) } else { Ok(self.step(account, 1)) }
    }

    fn deposit(&self) -> u64 {
        self.total.rotate_left(2)
    }

    fn withdraw(&mut self, cx: &mut Context<'_>, name: String) -> Option<u64> {
        Some(self.step(name.len() as u64, cx.index()))
    }

    fn transfer(&mut self, account: u64, amount: u64) -> u64 {
        self.step(account.rotate_left(4), amount)
    }

    fn freeze(&mut self, account: u64) -> Result<u64, Refused> {
        if account == 1005 { Err(Refused::Never) } else { Ok(self.step(account, 5)) }
    }

    fn thaw(&self) -> u64 {
        self.total.rotate_left(6)
    }

    fn rename(&mut self, cx: &mut Context<'_>, name: String) -> Option<u64> {
        Some(self.step(name.len() as u64, cx.index()))
    }

    fn watch(&mut self, account: u64, amount: u64) -> u64 {
        self.step(account.rotate_left(8), amount)
    }

    fn unwatch(&mut self, account: u64) -> Result<u64, Refused> {
        if account == 1009 { Err(Refused::Never) } else { Ok(self.step(account, 9)) }
    }

    fn audit(&self) -> u64 {
        self.total.rotate_left(10)
    }

    fn count(&mut self, cx: &mut Context<'_>, name: String) -> Option<u64> {
        Some(self.step(name.len() as u64, cx.index()))
    }

    fn tag(&mut self, account: u64, amount: u64) -> u64 {
        self.step(account.rotate_left(12), amount)
    }

    fn untag(&mut self, account: u64) -> Result<u64, Refused> {
        if account == 1013 { Err(Refused::Never) } else { Ok(self.step(account, 13)) }
    }

    fn lock(&self) -> u64 {
        self.total.rotate_left(14)
    }

    fn unlock(&mut self, cx: &mut Context<'_>, name: String) -> Option<u64> {
        Some(self.step(name.len() as u64, cx.index()))
    }

    fn raise(&mut self, account: u64, amount: u64) -> u64 {
        self.step(account.rotate_left(16), amount)
    }

    fn lower(&mut self, account: u64) -> Result<u64, Refused> {
        if account == 1017 { Err(Refused::Never) } else { Ok(self.step(account, 17)) }
    }

    fn swap(&self) -> u64 {
        self.total.rotate_left(18)
    }

    fn rotate(&mut self, cx: &mut Context<'_>, name: String) -> Option<u64> {
        Some(self.step(name.len() as u64, cx.index()))
    }

    fn mark(&mut self, account: u64, amount: u64) -> u64 {
        self.step(account.rotate_left(20), amount)
    }

    fn clear(&mut self, account: u64) -> Result<u64, Refused> {
        if account == 1021 { Err(Refused::Never) } else { Ok(self.step(account, 21)) }
    }

    fn note(&self) -> u64 {
        self.total.rotate_left(22)
    }

    fn ping(&mut self, cx: &mut Context<'_>, name: String) -> Option<u64> {
        Some(self.step(name.len() as u64, cx.index()))
    }
}

/// The twin of the generated dispatch.
fn apply_by_hand(
    shop: &mut Shop,
    cx: &mut Context<'_>,
    command: ShopCommand,
) -> Result<Response, EncodeError> {
    match command {
        ShopCommand::Open { account, amount } => shop.open(account, amount).into_response(),
        ShopCommand::Close(account) => shop.close(account).into_response(),
        ShopCommand::Deposit => shop.deposit().into_response(),
        ShopCommand::Withdraw { name } => shop.withdraw(cx, name).into_response(),
        ShopCommand::Transfer { account, amount } => shop.transfer(account, amount).into_response(),
        ShopCommand::Freeze(account) => shop.freeze(account).into_response(),
        ShopCommand::Thaw => shop.thaw().into_response(),
        ShopCommand::Rename { name } => shop.rename(cx, name).into_response(),
        ShopCommand::Watch { account, amount } => shop.watch(account, amount).into_response(),
        ShopCommand::Unwatch(account) => shop.unwatch(account).into_response(),
        ShopCommand::Audit => shop.audit().into_response(),
        ShopCommand::Count { name } => shop.count(cx, name).into_response(),
        ShopCommand::Tag { account, amount } => shop.tag(account, amount).into_response(),
        ShopCommand::Untag(account) => shop.untag(account).into_response(),
        ShopCommand::Lock => shop.lock().into_response(),
        ShopCommand::Unlock { name } => shop.unlock(cx, name).into_response(),
        ShopCommand::Raise { account, amount } => shop.raise(account, amount).into_response(),
        ShopCommand::Lower(account) => shop.lower(account).into_response(),
        ShopCommand::Swap => shop.swap().into_response(),
        ShopCommand::Rotate { name } => shop.rotate(cx, name).into_response(),
        ShopCommand::Mark { account, amount } => shop.mark(account, amount).into_response(),
        ShopCommand::Clear(account) => shop.clear(account).into_response(),
        ShopCommand::Note => shop.note().into_response(),
        ShopCommand::Ping { name } => shop.ping(cx, name).into_response(),
    }
}

/// A command for every number.
fn command(number: u64) -> ShopCommand {
    match number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40 & 31 {
        0 => ShopCommand::Open { account: number, amount: number >> 3 },
        1 => ShopCommand::Close(number),
        2 => ShopCommand::Deposit,
        3 => ShopCommand::Withdraw { name: String::new() },
        4 => ShopCommand::Transfer { account: number, amount: number >> 3 },
        5 => ShopCommand::Freeze(number),
        6 => ShopCommand::Thaw,
        7 => ShopCommand::Rename { name: String::new() },
        8 => ShopCommand::Watch { account: number, amount: number >> 3 },
        9 => ShopCommand::Unwatch(number),
        10 => ShopCommand::Audit,
        11 => ShopCommand::Count { name: String::new() },
        12 => ShopCommand::Tag { account: number, amount: number >> 3 },
        13 => ShopCommand::Untag(number),
        14 => ShopCommand::Lock,
        15 => ShopCommand::Unlock { name: String::new() },
        16 => ShopCommand::Raise { account: number, amount: number >> 3 },
        17 => ShopCommand::Lower(number),
        18 => ShopCommand::Swap,
        19 => ShopCommand::Rotate { name: String::new() },
        20 => ShopCommand::Mark { account: number, amount: number >> 3 },
        21 => ShopCommand::Clear(number),
        22 => ShopCommand::Note,
        _ => ShopCommand::Ping { name: String::new() },
    }
}

const COMMANDS: u64 = 20_000;

/// The two functions that are measured. They must stay functions of their own to be counted.
#[inline(never)]
fn measured_generated(
    shop: &mut Shop,
    cx: &mut Context<'_>,
    commands: Vec<ShopCommand>,
) -> Result<(), EncodeError> {
    for command in commands {
        <Shop as StateMachine>::apply(shop, cx, command)?;
    }
    Ok(())
}

#[inline(never)]
fn measured_by_hand(
    shop: &mut Shop,
    cx: &mut Context<'_>,
    commands: Vec<ShopCommand>,
) -> Result<(), EncodeError> {
    for command in commands {
        apply_by_hand(shop, cx, command)?;
    }
    Ok(())
}

/// What the measured process does: one of the two, so that it does not matter if the compiler finds both to be
/// the same and keeps one.
fn child(generated: bool) -> Result<(), Box<dyn Error>> {
    let commands: Vec<ShopCommand> = (0..COMMANDS).map(command).collect();
    let mut shop = Shop::default();
    let mut test = TestContext::<Never>::new();
    if generated {
        measured_generated(&mut shop, &mut test.context(), commands)?;
    } else {
        measured_by_hand(&mut shop, &mut test.context(), commands)?;
    }
    println!("{}", shop.total);
    Ok(())
}

/// The instructions that one of the two took, counted by valgrind, and what it came to.
fn instructions(which: &str) -> Result<(u64, String), Box<dyn Error>> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*measured_*"])
        .arg(std::env::current_exe()?)
        .arg(which)
        .output()
        .map_err(|error| format!("valgrind is needed to count instructions: {error}"))?;
    let report = String::from_utf8_lossy(&output.stderr);
    let collected = report.lines().find_map(|line| line.split_once("Collected : "));
    let count = collected.and_then(|(_, count)| count.trim().parse().ok()).filter(|count| *count > 0);
    let count = count.ok_or_else(|| format!("valgrind counted nothing:\n{report}"))?;
    Ok((count, String::from_utf8(output.stdout)?))
}

#[allow(clippy::cast_precision_loss)] // a ratio for people
fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1).as_deref() {
        Some("generated") => return child(true),
        Some("by-hand") => return child(false),
        _ => {}
    }
    let (by_hand, expected) = instructions("by-hand")?;
    let (generated, total) = instructions("generated")?;
    assert_eq!(total, expected, "both do the same");
    let each = |count: u64| count as f64 / COMMANDS as f64;
    println!("instructions a command, its answer encoded, over {COMMANDS} commands of 24 kinds:");
    println!("  a match by hand   {:>8.1}", each(by_hand));
    println!("  generated         {:>8.1}", each(generated));
    println!("  ratio             {:>8.3}  (aim: at most 1.02)", generated as f64 / by_hand as f64);
    Ok(())
}
