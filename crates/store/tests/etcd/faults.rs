//! What only etcd has: crashes of the member, foreign data, members and leases.
