//! The runtime without an engine of ours: three replicas of a machine on `omnipaxos`, a consensus library from the
//! registry. What an engine must do is all in `server.rs`.
//!
//! The program plays what goes wrong in a cluster, in one process: a leader is cut off after it committed a command and
//! before it could answer; another is cut off before anybody else heard of the command; a replica loses its memory. The
//! client is the real one, `ClientSession`, and sends again until it is answered. Every command runs once.

mod server;

use server::{Server, TillCommand};
use session_runtime::client::{ClientConfig, ClientEvent, ClientMessage, ClientSession};
use session_runtime::{Command, SessionStateMachine};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::time::Duration;

const SERVERS: [u64; 3] = [1, 2, 3];

/// Three servers, one client, and what is between them.
struct World {
    servers: BTreeMap<u64, Server>,
    /// The servers that nobody reaches.
    cut_off: BTreeSet<u64>,
    client: ClientSession,
    /// The server the client talks to.
    connected: u64,
    now: Duration,
    /// How often a request of the client went out.
    sent: u64,
}

impl World {
    fn new() -> Result<Self, Box<dyn Error>> {
        let mut servers = BTreeMap::new();
        for id in SERVERS {
            servers.insert(id, Server::new(id, &SERVERS)?);
        }
        let config = ClientConfig { resend_after: Duration::from_millis(200), ..ClientConfig::default() };
        let client = ClientSession::open(config, Duration::ZERO);
        Ok(Self { servers, cut_off: BTreeSet::new(), client, connected: 1, now: Duration::ZERO, sent: 0 })
    }

    /// Ten milliseconds: every server does its part, and messages between servers are moved.
    fn step(&mut self) -> Result<(), Box<dyn Error>> {
        self.now += Duration::from_millis(10);
        for server in self.servers.values_mut() {
            server.tick(self.now);
        }
        let sent: Vec<_> = self.servers.values_mut().flat_map(Server::take_messages).collect();
        for message in sent {
            let (from, to) = (message.get_sender(), message.get_receiver());
            if self.cut_off.contains(&from) || self.cut_off.contains(&to) {
                continue;
            }
            if let Some(server) = self.servers.get_mut(&to) {
                server.receive(message);
            }
        }
        for (id, server) in &mut self.servers {
            for answer in server.apply()? {
                if *id == self.connected && !self.cut_off.contains(id) {
                    self.client.receive(self.now, answer);
                }
            }
        }
        Ok(())
    }

    /// The client sends what it has to send, and a server that does not lead says who does.
    fn let_client_speak(&mut self) {
        while let Some(message) = self.client.poll(self.now) {
            self.sent += u64::from(matches!(message, ClientMessage::Request { .. }));
            if self.cut_off.contains(&self.connected) {
                continue; // It falls on deaf ears.
            }
            if let Some(server) = self.servers.get_mut(&self.connected)
                && let Some(answer) = server.serve(message, self.now)
            {
                self.client.receive(self.now, answer);
            }
        }
    }

    /// Lets time pass until the client's request is answered.
    fn answer(&mut self) -> Result<u64, Box<dyn Error>> {
        for _ in 0..1_000 {
            self.let_client_speak();
            self.step()?;
            while let Some(event) = self.client.event() {
                match event {
                    ClientEvent::Ended { result, .. } => {
                        return Ok(result?.read()?);
                    }
                    ClientEvent::Redirected { leader } => {
                        self.connected = leader.and_then(|id| id.parse().ok()).unwrap_or(self.connected);
                        self.client.reconnected(self.now);
                    }
                    _ => {}
                }
            }
        }
        Err("nobody answers".into())
    }

    /// Lets time pass until a majority follows one leader among the servers that can be reached.
    fn elect(&mut self) -> Result<u64, Box<dyn Error>> {
        for _ in 0..1_000 {
            self.step()?;
            let leads = |id: &u64| !self.cut_off.contains(id) && self.servers[id].leads();
            if let Some(leader) = SERVERS.into_iter().find(leads) {
                return Ok(leader);
            }
        }
        Err("no leader was elected".into())
    }

    fn cut_off(&mut self, id: u64) {
        self.cut_off.insert(id);
    }

    fn reconnect(&mut self, id: u64) -> Result<(), Box<dyn Error>> {
        self.cut_off.remove(&id);
        for (one, server) in &mut self.servers {
            for other in SERVERS.into_iter().filter(|other| other != one && (*one == id || *other == id)) {
                server.reconnected(other);
            }
        }
        for _ in 0..100 {
            self.step()?;
        }
        Ok(())
    }

    fn submit(&mut self, command: &TillCommand) -> Result<(), Box<dyn Error>> {
        self.client.submit(self.now, command.encode())?;
        Ok(())
    }

    fn log_length(&self) -> u64 {
        self.servers.values().map(|server| server.machine().last_applied()).max().unwrap_or(0)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut world = World::new()?;
    let first = world.elect()?;
    println!("Three servers elect a leader: server {first}.");

    println!("A client asks server 1, is told who leads, opens a session, and puts 100 into the till.");
    world.submit(&TillCommand::Put { amount: 100 })?;
    println!("  the answer is {}", world.answer()?);

    println!("It takes 30. The leader appends it and the others agree ...");
    world.submit(&TillCommand::Take { amount: 30 })?;
    world.let_client_speak();
    world.connected = 0; // The line to the client is down: whatever is answered now is lost.
    for _ in 0..10 {
        world.step()?;
    }
    world.cut_off(first);
    let second = world.elect()?;
    println!("  ... but it is cut off before it can answer. Server {second} leads now.");
    println!(
        "  its till holds {}: the command is done, and the client does not know.",
        world.servers[&second].till()
    );

    let before = world.log_length();
    world.connected = second;
    world.client.reconnected(world.now);
    println!("The client has heard nothing, goes to server {second}, and sends again.");
    println!(
        "  the answer is {}, as it would have been; {} entries were added",
        world.answer()?,
        world.log_length() - before
    );

    println!("Server {first} is back. The client takes 20; the leader appends it, and tells nobody ...");
    world.reconnect(first)?;
    world.submit(&TillCommand::Take { amount: 20 })?;
    world.let_client_speak();
    world.cut_off(second);
    let third = world.elect()?;
    println!(
        "  ... because it is cut off. Server {third} leads now, whose till holds {}.",
        world.servers[&third].till()
    );
    world.connected = third;
    world.client.reconnected(world.now);
    println!("The client sends again, and this time the copy is the one that runs.");
    println!("  the answer is {}", world.answer()?);
    world.reconnect(second)?;

    let lost = SERVERS.into_iter().find(|id| *id != third).unwrap_or(third);
    println!("Server {lost} loses its memory, and starts from a snapshot of server {third}.");
    let snapshot = world.servers[&third].machine().snapshot()?;
    if let Some(server) = world.servers.get_mut(&lost) {
        server.start_from(SessionStateMachine::restore(&snapshot)?);
    }

    println!("The client puts 5 into the till.");
    world.submit(&TillCommand::Put { amount: 5 })?;
    println!("  the answer is {}", world.answer()?);
    for _ in 0..20 {
        world.step()?; // The others hear of it.
    }

    let reference = world.servers[&third].machine().snapshot()?.dictionary()?;
    for (id, server) in &world.servers {
        assert!(server.machine().snapshot()?.dictionary()? == reference, "server {id} differs");
    }
    println!("The three replicas hold the same, key by key: {} in each till.", world.servers[&third].till());
    println!("  100 - 30 - 20 + 5, by 4 commands that were sent {} times.", world.sent);
    Ok(())
}
