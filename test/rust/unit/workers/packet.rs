// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/workers/packet.rs`.

use super::*;
use proptest::prelude::*;

#[test]
fn the_longest_packets_have_room() {
    let (bytes, cores) = ([7u8; MESSAGE_MAX], [7u8; 2 * crate::wire::hello::CORES]);
    let mut out = Vec::new();
    for packet in [
        Packet::Begin { host: 1, threads: 2, crowded: true, fragment: 5, doorbell: (3, 4), cores: &cores },
        Packet::Message(&bytes),
        Packet::FailAll(&bytes),
    ] {
        packet.write(1, &mut out);
        assert!(out.len() <= PACKET_MAX, "{}", out.len());
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(generation: u32, n: u32, at: u64, bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let even = &bytes[..bytes.len() & !1];
        let (rank, tag, len) = (n.wrapping_mul(3), n ^ 5, at >> 3);
        let mut out = Vec::new();
        for packet in [
            Packet::Begin { host: n, threads: tag, crowded: n % 2 == 1, fragment: at, doorbell: (rank, at), cores: even },
            Packet::Message(&bytes),
            Packet::Send(Transfer { id: !at, route: (rank, tag), at, len }),
            Packet::Receive(Transfer { id: at, route: (tag, n), at: len, len: at }),
            Packet::Done { id: !at, len },
            Packet::TakeSnapshot,
            Packet::SnapshotTaken { pid: n },
            Packet::FailAll(&bytes),
            Packet::Awake { pid: n },
            Packet::WrongSnapshot,
            Packet::Replayed,
        ] {
            packet.write(generation, &mut out);
            prop_assert_eq!(Packet::parse(&out).unwrap(), (generation, packet));
        }
    }

    #[test]
    fn any_bytes_are_safe_to_read(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = Packet::parse(&bytes);
    }
}
