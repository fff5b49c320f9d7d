//! The table of open connections. It decides which connection is closed when the limit is reached.
//!
//! A connection is unauthenticated until a request with a valid key arrives on it. If there is no room for a new
//! connection, the table closes the oldest unauthenticated connection of the address with the most of them. One address
//! may have half of all connections, because a load balancer or a gateway may serve many clients. All unauthenticated
//! connections together may also have half.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::peer::Peer;

/// The most open connections, if the system has enough file descriptors.
const MAX_CONNECTIONS: usize = 10_000;

/// The divisor of all connections above which a tenant loses the oldest connection when there is no room.
const LARGE_TENANT_DIVISOR: usize = 8;

/// The file descriptors that are reserved for the database, the audit log and its rotation, the administrator's socket,
/// and connections that are being closed.
const RESERVED_DESCRIPTORS: usize = 128;

/// The limits of open connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionLimits {
    /// The limit of all connections.
    pub total: usize,
    /// The limit of one address. A /64 network of IPv6 counts as one address.
    per_address: usize,
    /// The limit of all unauthenticated connections.
    unauthenticated: usize,
}

/// The file descriptors for connections to upstreams, which requests of clients open.
pub fn upstream_descriptors(descriptors: usize) -> usize {
    (descriptors / 4).min(MAX_CONNECTIONS)
}

impl ConnectionLimits {
    /// The limits for a number of file descriptors.
    pub fn of_descriptors(descriptors: usize) -> Self {
        let reserved = RESERVED_DESCRIPTORS.min(descriptors / 2);
        let total = (descriptors - reserved).clamp(1, MAX_CONNECTIONS);
        Self { total, per_address: total.div_ceil(2), unauthenticated: total.div_ceil(2) }
    }
}

/// The open connections.
#[derive(Debug)]
pub struct ConnectionTable {
    limits: ConnectionLimits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    open: HashMap<u64, Arc<Peer>>,
    addresses: HashMap<IpAddr, AddressConnections>,
    /// The number of connections that were unauthenticated at the last check.
    unauthenticated: usize,
    /// The addresses with unauthenticated connections, ordered by the number of these.
    by_unauthenticated: BTreeSet<(usize, IpAddr)>,
}

/// The connections of one address.
#[derive(Debug, Default)]
struct AddressConnections {
    open: usize,
    /// The connections that were unauthenticated at the last check, by age.
    unauthenticated: BTreeSet<u64>,
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
    /// The connection is in the table.
    Admitted {
        /// The entry in the table.
        connection: OpenConnection,
        /// Whether another connection was closed for it.
        evicted: bool,
    },
    /// There is no room, and no connection that can be closed.
    Refused,
}

/// The result of moving a connection to another address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moved {
    /// The connection is in the table under its new address.
    Admitted {
        /// Whether another connection was closed for it.
        evicted: bool,
    },
    /// There is no room, or the connection was closed meanwhile.
    Refused,
}

/// The network of an address that counts as one address: for IPv6, that of 64 bits, which a client usually has as a whole.
pub fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64))),
    }
}

impl State {
    /// Changes the connections of an address, and updates the order of addresses.
    fn change(&mut self, address: IpAddr, change: impl FnOnce(&mut AddressConnections)) {
        let of_address = self.addresses.entry(address).or_default();
        let before = of_address.unauthenticated.len();
        change(of_address);
        let (after, open) = (of_address.unauthenticated.len(), of_address.open);
        self.by_unauthenticated.remove(&(before, address));
        if after > 0 {
            self.by_unauthenticated.insert((after, address));
        }
        self.unauthenticated = self.unauthenticated + after - before;
        if open == 0 {
            self.addresses.remove(&address);
        }
    }

    /// The oldest unauthenticated connection of an address. Connections that were authenticated since the
    /// last check are skipped.
    fn oldest_unauthenticated(&mut self, address: IpAddr) -> Option<u64> {
        loop {
            let id = *self.addresses.get(&address)?.unauthenticated.first()?;
            if self.open.get(&id).is_some_and(|client| !client.is_authenticated()) {
                return Some(id);
            }
            self.change(address, |of_address| {
                of_address.unauthenticated.remove(&id);
            });
        }
    }

    /// The oldest unauthenticated connection of the address that has the most of them.
    fn oldest_of_busiest_address(&mut self) -> Option<u64> {
        while let Some((_, address)) = self.by_unauthenticated.last().copied() {
            if let Some(id) = self.oldest_unauthenticated(address) {
                return Some(id);
            }
        }
        None
    }

    /// The oldest connection of the tenant with the most connections, of one address or of all. `None` when no tenant
    /// has more than an eighth. It scans all connections, which only happens at the limit.
    fn oldest_of_busiest_tenant(
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
        (count > limits.total / LARGE_TENANT_DIVISOR).then_some(oldest)
    }

    /// Adds a connection, if there is room. Returns its id, and the connection that must be closed for it.
    fn admit(
        &mut self,
        client: &Arc<Peer>,
        limits: &ConnectionLimits,
    ) -> Option<(u64, Option<Arc<Peer>>)> {
        let evicted = match self.room(network(client.address()), limits) {
            Room::Free => None,
            Room::After(id) => self.remove(id),
            Room::None => return None,
        };
        Some((self.insert(client), evicted))
    }

    fn insert(&mut self, client: &Arc<Peer>) -> u64 {
        let id = self.next;
        self.next += 1;
        self.open.insert(id, client.clone());
        self.change(network(client.address()), |of_address| {
            of_address.open += 1;
            of_address.unauthenticated.insert(id);
        });
        id
    }

    fn remove(&mut self, id: u64) -> Option<Arc<Peer>> {
        let client = self.open.remove(&id)?;
        self.change(network(client.address()), |of_address| {
            of_address.open -= 1;
            of_address.unauthenticated.remove(&id);
        });
        Some(client)
    }

    /// The room for a new connection of an address.
    fn room(&mut self, address: IpAddr, limits: &ConnectionLimits) -> Room {
        let of_address = self.addresses.get(&address).map_or(0, |of_address| of_address.open);
        if of_address >= limits.per_address {
            let evicted = self.oldest_unauthenticated(address);
            let evicted = evicted.or_else(|| self.oldest_of_busiest_tenant(Some(address), limits));
            return evicted.map_or(Room::None, Room::After);
        }
        let full = self.open.len() >= limits.total;
        if !full && self.unauthenticated < limits.unauthenticated {
            return Room::Free;
        }
        let evicted = self.oldest_of_busiest_address();
        let evicted = evicted.or_else(|| self.oldest_of_busiest_tenant(None, limits));
        if !full && self.unauthenticated < limits.unauthenticated {
            // Some of the counted connections were authenticated meanwhile.
            return Room::Free;
        }
        evicted.map_or(Room::None, Room::After)
    }
}

/// The room for a new connection.
enum Room {
    /// There is room.
    Free,
    /// There is room if this connection is closed.
    After(u64),
    /// There is no room.
    None,
}

impl ConnectionTable {
    /// A table without connections.
    pub fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { limits, state: Mutex::default() })
    }

    /// Admits a new connection. If another connection is closed for it, that one leaves the table at once.
    pub fn admit(self: &Arc<Self>, client: &Arc<Peer>) -> Admission {
        let admitted = self.state.lock().admit(client, &self.limits);
        let Some((id, evicted)) = admitted else { return Admission::Refused };
        if let Some(evicted) = &evicted {
            evicted.close();
        }
        let connection = OpenConnection { table: self.clone(), id, peer: client.clone() };
        Admission::Admitted { connection, evicted: evicted.is_some() }
    }

    /// The number of open connections.
    pub fn open(&self) -> usize {
        self.state.lock().open.len()
    }
}

impl OpenConnection {
    /// Moves the connection to the address of the client behind a proxy, as if it had been accepted from there.
    pub fn move_to(&mut self, address: IpAddr) -> Moved {
        let mut state = self.table.state.lock();
        let Some(client) = state.remove(self.id) else { return Moved::Refused };
        client.set_behind_proxy(address);
        let admitted = state.admit(&client, &self.table.limits);
        drop(state);
        let Some((id, evicted)) = admitted else { return Moved::Refused };
        self.id = id;
        if let Some(evicted) = &evicted {
            evicted.close();
        }
        Moved::Admitted { evicted: evicted.is_some() }
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
        let limits = ConnectionLimits { total, per_address: total / 2, unauthenticated: total / 2 };
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
    fn the_oldest_unauthenticated_connection_of_an_address_is_closed_first() {
        let table = table(8);
        let clients: Vec<_> = (0..5).map(|_| client("192.0.2.1")).collect();
        clients[0].set_authenticated("admin", true);
        let open: Vec<_> = clients.iter().map(|one| admitted(&table, one).unwrap()).collect();
        assert_eq!(table.open(), 4);
        let closed: Vec<bool> = clients.iter().map(|one| is_closed(one)).collect();
        assert_eq!(closed, [false, true, false, false, false], "the connection with a key stays");
        let other = client("192.0.2.2");
        let other = admitted(&table, &other);
        assert!(other.is_some() && table.open() == 5, "another address has room");
        drop((open, other));
        assert_eq!(table.open(), 0);
        let state = table.state.lock();
        assert!(state.addresses.is_empty() && state.by_unauthenticated.is_empty());
        assert_eq!(state.unauthenticated, 0);
    }

    #[test]
    fn unauthenticated_connections_have_half_and_authenticated_ones_the_rest() {
        let table = table(8);
        let anonymous: Vec<_> = (0..4).map(|n| client(&format!("198.51.100.{n}"))).collect();
        let mut open: Vec<_> = anonymous.iter().map(|one| admitted(&table, one)).collect();
        let known: Vec<_> = (0..4).map(|n| client(&format!("192.0.2.{n}"))).collect();
        for one in &known {
            open.push(admitted(&table, one));
            one.set_authenticated("admin", true);
        }
        assert_eq!(table.open(), 4, "each of these was unauthenticated when it came");
        assert!(anonymous.iter().all(|one| is_closed(one)));
        open.extend((0..4).map(|n| admitted(&table, &client(&format!("203.0.113.{n}")))));
        assert_eq!(table.open(), 8);
        let last = client("203.0.113.9");
        open.push(admitted(&table, &last));
        assert_eq!(table.open(), 8, "an unauthenticated connection was closed for it");
        assert!(known.iter().all(|one| !is_closed(one)));
        last.set_authenticated("admin", true);
    }

    #[test]
    fn the_address_with_most_unauthenticated_connections_makes_room() {
        let table = table(8);
        let one = client("192.0.2.9");
        let mut open = vec![admitted(&table, &one)];
        let many: Vec<_> = (0..3).map(|_| client("192.0.2.1")).collect();
        open.extend(many.iter().map(|client| admitted(&table, client)));
        open.push(admitted(&table, &client("192.0.2.1")));
        let closed: Vec<bool> = many.iter().map(|client| is_closed(client)).collect();
        assert_eq!(closed, [true, false, false]);
        assert!(!is_closed(&one), "it is older, but its address has no other");
    }

    #[test]
    fn no_authenticated_connection_is_closed_for_an_unauthenticated_one() {
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
        assert!(
            is_closed(&many[0]) && !is_closed(&many[1]),
            "the oldest of the tenant with the most"
        );
    }

    #[test]
    fn a_connection_of_a_proxy_counts_for_the_client_behind_it() {
        let table = table(8);
        let clients: Vec<_> = (0..6).map(|_| client("192.0.2.1")).collect();
        let mut open = Vec::new();
        for (number, one) in clients.iter().enumerate() {
            let mut connection = admitted(&table, one).unwrap();
            let address = format!("198.51.100.{}", number % 4).parse().unwrap();
            assert!(matches!(connection.move_to(address), Moved::Admitted { .. }));
            assert_eq!(one.address(), address);
            open.push(connection);
        }
        let state = table.state.lock();
        assert!(!state.addresses.contains_key(&"192.0.2.1".parse().unwrap()));
        drop(state);
        let mut closed = admitted(&table, &client("192.0.2.1")).unwrap();
        table.state.lock().remove(closed.id);
        assert_eq!(closed.move_to("203.0.113.1".parse().unwrap()), Moved::Refused);
        drop((open, closed));
        let state = table.state.lock();
        assert!(state.open.is_empty() && state.addresses.is_empty());
        assert!(state.by_unauthenticated.is_empty());
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }

    #[test]
    fn descriptors_are_reserved_for_other_uses() {
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
