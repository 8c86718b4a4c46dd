//! A log as a scenario script, in the format of `tests/scripts`.

use super::world::Logged;
use crate::{
    action::{Alive, RaftAction},
    codec,
    identity::SessionId,
    limits::Limits,
    machine::{Command, StateMachine},
    state::to_hex,
};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The names of a log's sessions, in the order in which they turn up.
pub(super) struct Names(BTreeMap<SessionId, String>);

impl Names {
    pub(super) fn of(log: &[Logged]) -> Self {
        let mut names = BTreeMap::new();
        for entry in log {
            each_session(&mut entry.action.clone(), |session| {
                let number = names.len().saturating_add(1);
                names.entry(*session).or_insert_with(|| format!("session{number}"));
            });
        }
        Self(names)
    }

    fn name(&self, session: SessionId) -> &str {
        self.0.get(&session).map_or("nobody", String::as_str)
    }

    /// A text in which sessions are called by their names.
    pub(super) fn in_text(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (id, name)| text.replace(&format!("{id:?}"), name))
    }

    /// The script of the log, under a comment. A command goes in as bytes, below a comment with its name.
    pub(super) fn script<M: StateMachine>(&self, comment: &str, log: &[Logged]) -> String {
        let mut text = String::new();
        for line in comment.lines() {
            let _ = writeln!(text, "# {line}");
        }
        // Ids sort by position, then by the order of drawing.
        for (id, name) in &self.0 {
            let _ = writeln!(text, "draw {name} at {}", id.position());
        }
        for (index, entry) in (1_u64..).zip(log) {
            if let Some(name) = command_name::<M>(&entry.action) {
                let _ = writeln!(text, "# {name}");
            }
            let _ = writeln!(text, "{index} @{} {}", entry.time.0, self.action(&entry.action));
        }
        text
    }

    fn action(&self, action: &RaftAction) -> String {
        match action {
            RaftAction::SessionCreationConfirmed { session, capabilities } => {
                let with = capabilities.iter().map(|(key, value)| format!("{key}={value}"));
                let with = with.collect::<Vec<_>>().join(", ");
                let with = if with.is_empty() { with } else { format!(" with {with}") };
                format!("create {}{with}", self.name(*session))
            }
            RaftAction::ClientRequest { session, request, lowest_pending, acked, payload } => format!(
                "request {} {} (lowest {}, acked {}): hex {}",
                self.name(*session),
                request.0,
                lowest_pending.0,
                acked.0,
                to_hex(payload)
            ),
            RaftAction::ServerRequestAck { session, request } => {
                format!("ack {} {}", self.name(*session), request.0)
            }
            RaftAction::SessionExpired { session } => format!("expire {}", self.name(*session)),
            RaftAction::GetRequestsForRetry { last_sent_before, limit } => {
                format!("retry before {} limit {limit}", last_sent_before.0)
            }
            RaftAction::KeepAlive { sessions } => {
                let sessions = sessions.iter().map(|Alive { session, lowest_pending, acked }| {
                    format!("{} (lowest {}, acked {})", self.name(*session), lowest_pending.0, acked.0)
                });
                format!("keep-alive {}", sessions.collect::<Vec<_>>().join(", "))
            }
            RaftAction::InternalCommand { payload } => format!("internal: hex {}", to_hex(payload)),
            RaftAction::Configure { limits, seed } => format!("configure {}", limits_text(limits, *seed)),
            RaftAction::Upgrade { version } => format!("upgrade {version}"),
            RaftAction::Tick => "tick".to_owned(),
        }
    }
}

fn limits_text(limits: &Limits, seed: Option<[u8; 32]>) -> String {
    let Limits { idle_timeout, max_sessions, evict_idlest, max_cached_bytes, max_pending_requests } = limits;
    let mut words = Vec::new();
    words.extend(idle_timeout.map(|limit| format!("idle_timeout {limit}")));
    words.extend(max_sessions.map(|limit| format!("max_sessions {limit}")));
    words.extend(evict_idlest.then(|| "evict_idlest".to_owned()));
    words.extend(max_cached_bytes.map(|limit| format!("max_cached_bytes {limit}")));
    words.extend(max_pending_requests.map(|limit| format!("max_pending_requests {limit}")));
    words.extend(seed.map(|[byte, ..]| format!("seed {byte}")));
    if words.is_empty() { "no limits".to_owned() } else { words.join(", ") }
}

/// Calls back for every session that an action names.
pub(super) fn each_session(action: &mut RaftAction, mut call: impl FnMut(&mut SessionId)) {
    match action {
        RaftAction::SessionCreationConfirmed { session, .. }
        | RaftAction::ClientRequest { session, .. }
        | RaftAction::ServerRequestAck { session, .. }
        | RaftAction::SessionExpired { session } => call(session),
        RaftAction::KeepAlive { sessions } => {
            for alive in sessions {
                call(&mut alive.session);
            }
        }
        RaftAction::GetRequestsForRetry { .. }
        | RaftAction::InternalCommand { .. }
        | RaftAction::Configure { .. }
        | RaftAction::Upgrade { .. }
        | RaftAction::Tick => {}
    }
}

/// The name of the command in an entry that holds one.
pub(super) fn command_name<M: StateMachine>(action: &RaftAction) -> Option<&'static str> {
    match action {
        RaftAction::ClientRequest { payload, .. } | RaftAction::InternalCommand { payload } => {
            Some(codec::decode::<M::Command>(payload).map_or("(no command)", |command| command.name()))
        }
        _ => None,
    }
}

/// What an entry holds, in a word: the command's name, or the action's.
pub(super) fn entry_name<M: StateMachine>(action: &RaftAction) -> String {
    match command_name::<M>(action) {
        Some(name) => format!("command `{name}`"),
        None => Names(BTreeMap::new()).action(action).split(' ').next().unwrap_or_default().to_owned(),
    }
}
