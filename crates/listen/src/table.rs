//! The table of open connections. It decides which one is closed when all are taken.
//!
//! A stranger is an unauthenticated connection: it has brought no request with a valid key yet.
//! Every connection begins as one, so strangers are admitted, but they are the first to be closed.
//! When there is no room for a new connection, the oldest stranger of the address that has the most
//! is closed for it. An address may have half of all connections, since a load balancer or a
//! gateway may stand there for many. All strangers together may have half, too.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::peer::Peer;

/// Connections open at once, if the system has descriptors for so many.
const MAX_CONNECTIONS: usize = 10_000;

/// A tenant with more than this part of all connections loses the oldest when there is no room.
const MANY_PART: usize = 8;

/// Descriptors that are kept for the database, the audit log and its rotation, the administrator's
/// socket, and connections that are just being closed.
const KEPT_DESCRIPTORS: usize = 128;

/// How many connections there may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionLimits {
    /// Of all.
    pub total: usize,
    /// Of one address; an IPv6 network of 64 bits counts as one.
    per_address: usize,
    /// Of all strangers.
    strangers: usize,
}

/// How many of a process's descriptors are for connections to upstreams, where clients can make it
/// open some.
pub fn upstream_descriptors(descriptors: usize) -> usize {
    (descriptors / 4).min(MAX_CONNECTIONS)
}

impl ConnectionLimits {
    /// The limits that follow from how many descriptors the process may have.
    pub fn of_descriptors(descriptors: usize) -> Self {
        let kept = KEPT_DESCRIPTORS.min(descriptors / 2);
        let total = (descriptors - kept).clamp(1, MAX_CONNECTIONS);
        Self { total, per_address: total.div_ceil(2), strangers: total.div_ceil(2) }
    }
}

/// The connections that are open.
#[derive(Debug)]
pub struct ConnectionTable {
    limits: ConnectionLimits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    open: HashMap<u64, Arc<Peer>>,
    addresses: HashMap<IpAddr, OfAddress>,
    /// How many were strangers when they were looked at last.
    strangers: usize,
    /// The addresses with strangers, by how many they have.
    by_strangers: BTreeSet<(usize, IpAddr)>,
}

/// The connections of one address.
#[derive(Debug, Default)]
struct OfAddress {
    open: usize,
    /// Those that were strangers when they were looked at last, by age.
    strangers: BTreeSet<u64>,
}

/// An open connection. It leaves the table on drop.
#[derive(Debug)]
pub struct OpenConnection {
    table: Arc<ConnectionTable>,
    id: u64,
    pub(crate) peer: Arc<Peer>,
}

/// The result of admitting a connection.
#[derive(Debug)]
pub enum Admission {
    /// It is in the table.
    Admitted {
        /// Its place there.
        connection: OpenConnection,
        /// Whether another one was closed for it.
        evicted: bool,
    },
    /// There is no room, and no stranger to close.
    Refused,
}

/// The network that counts as one address.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64))),
    }
}

impl State {
    /// Changes what there is of an address, and keeps the order of addresses in step.
    fn change(&mut self, address: IpAddr, change: impl FnOnce(&mut OfAddress)) {
        let of_address = self.addresses.entry(address).or_default();
        let before = of_address.strangers.len();
        change(of_address);
        let (after, open) = (of_address.strangers.len(), of_address.open);
        self.by_strangers.remove(&(before, address));
        if after > 0 {
            self.by_strangers.insert((after, address));
        }
        self.strangers = self.strangers + after - before;
        if open == 0 {
            self.addresses.remove(&address);
        }
    }

    /// The oldest stranger of an address. A connection that was authenticated since the last look
    /// is no stranger any more.
    fn oldest_stranger(&mut self, address: IpAddr) -> Option<u64> {
        loop {
            let id = *self.addresses.get(&address)?.strangers.first()?;
            if self.open.get(&id).is_some_and(|client| !client.is_authenticated()) {
                return Some(id);
            }
            self.change(address, |of_address| {
                of_address.strangers.remove(&id);
            });
        }
    }

    /// The oldest stranger of the address that has the most of them.
    fn stranger_of_most(&mut self) -> Option<u64> {
        while let Some((_, address)) = self.by_strangers.last().copied() {
            if let Some(id) = self.oldest_stranger(address) {
                return Some(id);
            }
        }
        None
    }

    /// The oldest connection of the tenant who has the most, of one address or of all; `None` when
    /// no tenant has many. It looks at all connections, which only happens when all are taken.
    fn connection_of_most(
        &self,
        address: Option<IpAddr>,
        limits: &ConnectionLimits,
    ) -> Option<u64> {
        let mut tenants: HashMap<&str, (usize, u64)> = HashMap::new();
        for (id, client) in &self.open {
            let counts = address.is_none_or(|address| network(client.address()) == address);
            let Some(tenant) = client.tenant().filter(|_| counts) else { continue };
            let (count, oldest) = tenants.entry(tenant).or_insert((0, *id));
            *count += 1;
            *oldest = (*oldest).min(*id);
        }
        let (count, oldest) = tenants.into_values().max()?;
        (count > limits.total / MANY_PART).then_some(oldest)
    }

    fn insert(&mut self, client: &Arc<Peer>) -> u64 {
        let id = self.next;
        self.next += 1;
        self.open.insert(id, client.clone());
        self.change(network(client.address()), |of_address| {
            of_address.open += 1;
            of_address.strangers.insert(id);
        });
        id
    }

    fn remove(&mut self, id: u64) -> Option<Arc<Peer>> {
        let client = self.open.remove(&id)?;
        self.change(network(client.address()), |of_address| {
            of_address.open -= 1;
            of_address.strangers.remove(&id);
        });
        Some(client)
    }

    /// The room for a new connection of an address.
    fn room(&mut self, address: IpAddr, limits: &ConnectionLimits) -> Room {
        let of_address = self.addresses.get(&address).map_or(0, |of_address| of_address.open);
        if of_address >= limits.per_address {
            let goes = self.oldest_stranger(address);
            let goes = goes.or_else(|| self.connection_of_most(Some(address), limits));
            return goes.map_or(Room::None, Room::After);
        }
        let full = self.open.len() >= limits.total;
        if !full && self.strangers < limits.strangers {
            return Room::Free;
        }
        let goes = self.stranger_of_most();
        let goes = goes.or_else(|| self.connection_of_most(None, limits));
        if !full && self.strangers < limits.strangers {
            // Some of those who were counted as strangers are none.
            return Room::Free;
        }
        goes.map_or(Room::None, Room::After)
    }
}

/// The room for a new connection.
enum Room {
    /// There is room.
    Free,
    /// There will be room when this stranger is gone.
    After(u64),
    /// There is no room.
    None,
}

impl ConnectionTable {
    /// A table without connections.
    pub fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { limits, state: Mutex::default() })
    }

    /// Enters a new connection. The stranger that is closed for it leaves the table at once.
    pub fn admit(self: &Arc<Self>, client: &Arc<Peer>) -> Admission {
        let mut state = self.state.lock();
        let evicted = match state.room(network(client.address()), &self.limits) {
            Room::Free => None,
            Room::After(stranger) => state.remove(stranger),
            Room::None => return Admission::Refused,
        };
        let id = state.insert(client);
        drop(state);
        if let Some(evicted) = &evicted {
            evicted.close();
        }
        let connection = OpenConnection { table: self.clone(), id, peer: client.clone() };
        Admission::Admitted { connection, evicted: evicted.is_some() }
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.state.lock().open.len()
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.table.state.lock().remove(self.id);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn client(address: &str) -> Arc<Peer> {
        Arc::new(Peer::new(address.parse().unwrap()))
    }

    fn table(total: usize) -> Arc<ConnectionTable> {
        let limits = ConnectionLimits { total, per_address: total / 2, strangers: total / 2 };
        ConnectionTable::new(limits)
    }

    fn admitted(table: &Arc<ConnectionTable>, client: &Arc<Peer>) -> Option<OpenConnection> {
        match table.admit(client) {
            Admission::Admitted { connection, .. } => Some(connection),
            Admission::Refused => None,
        }
    }

    fn is_closed(client: &Peer) -> bool {
        client.closed().now_or_never().is_some()
    }

    #[test]
    fn the_oldest_stranger_of_an_address_goes_first() {
        let table = table(8);
        let clients: Vec<_> = (0..5).map(|_| client("192.0.2.1")).collect();
        clients[0].set_authenticated("admin", true);
        let open: Vec<_> = clients.iter().map(|one| admitted(&table, one).unwrap()).collect();
        assert_eq!(table.open(), 4);
        let closed: Vec<bool> = clients.iter().map(|one| is_closed(one)).collect();
        assert_eq!(closed, [false, true, false, false, false], "not the one with a key");
        let other = client("192.0.2.2");
        let other = admitted(&table, &other);
        assert!(other.is_some() && table.open() == 5, "another address has room");
        drop((open, other));
        assert_eq!(table.open(), 0);
        let state = table.state.lock();
        assert!(state.addresses.is_empty() && state.by_strangers.is_empty());
        assert_eq!(state.strangers, 0);
    }

    #[test]
    fn strangers_have_half_and_those_with_keys_the_rest() {
        let table = table(8);
        let strangers: Vec<_> = (0..4).map(|n| client(&format!("198.51.100.{n}"))).collect();
        let mut open: Vec<_> = strangers.iter().map(|one| admitted(&table, one)).collect();
        let known: Vec<_> = (0..4).map(|n| client(&format!("192.0.2.{n}"))).collect();
        for one in &known {
            open.push(admitted(&table, one));
            one.set_authenticated("admin", true);
        }
        assert_eq!(table.open(), 4, "each of these was a stranger when it came");
        assert!(strangers.iter().all(|one| is_closed(one)));
        open.extend((0..4).map(|n| admitted(&table, &client(&format!("203.0.113.{n}")))));
        assert_eq!(table.open(), 8);
        let last = client("203.0.113.9");
        open.push(admitted(&table, &last));
        assert_eq!(table.open(), 8, "a stranger went for it");
        assert!(known.iter().all(|one| !is_closed(one)));
        last.set_authenticated("admin", true);
    }

    #[test]
    fn the_address_with_most_strangers_makes_room() {
        let table = table(8);
        let one = client("192.0.2.9");
        let mut open = vec![admitted(&table, &one)];
        let many: Vec<_> = (0..3).map(|_| client("192.0.2.1")).collect();
        open.extend(many.iter().map(|client| admitted(&table, client)));
        open.push(admitted(&table, &client("192.0.2.1")));
        let closed: Vec<bool> = many.iter().map(|client| is_closed(client)).collect();
        assert_eq!(closed, [true, false, false]);
        assert!(!is_closed(&one), "older, but alone");
    }

    #[test]
    fn nobody_with_a_key_goes_for_a_stranger() {
        let table = table(2);
        let known = [client("192.0.2.1"), client("192.0.2.2")];
        let mut open = Vec::new();
        for one in &known {
            open.push(admitted(&table, one));
            one.set_authenticated("admin", true);
        }
        assert!(matches!(table.admit(&client("192.0.2.3")), Admission::Refused));
        open.pop();
        assert!(admitted(&table, &client("192.0.2.3")).is_some());
    }

    #[test]
    fn no_tenant_keeps_all_connections() {
        let table = table(8);
        let many: Vec<_> = (0..8).map(|n| client(&format!("192.0.2.{n}"))).collect();
        let mut open = Vec::new();
        for one in &many {
            open.push(admitted(&table, one));
            one.set_authenticated("ada", false);
        }
        open.push(admitted(&table, &client("198.51.100.1")));
        assert_eq!(table.open(), 8);
        assert!(is_closed(&many[0]) && !is_closed(&many[1]), "the oldest of who has the most");
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }

    #[test]
    fn descriptors_are_kept_for_other_things() {
        let of = |descriptors| ConnectionLimits::of_descriptors(descriptors).total;
        assert_eq!((of(1024), of(100), of(1 << 20), of(1)), (896, 50, MAX_CONNECTIONS, 1));
        let both = |descriptors| {
            let upstream = upstream_descriptors(descriptors);
            of(descriptors - upstream) + upstream
        };
        assert!(
            [100, 1024, 10_128, 13_504].map(|all| both(all) < all).iter().all(|is_less| *is_less)
        );
        assert_eq!(of(13_504 - upstream_descriptors(13_504)), MAX_CONNECTIONS);
    }
}
