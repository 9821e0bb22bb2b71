// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/wire/command.rs`.

use super::*;
use proptest::prelude::*;

fn shape(n: u64) -> Shape {
    let (a, b) = (n as u32, (n >> 32) as u32);
    Shape { version: a, tripcount: n, flags: !n, teams: [a, b, 1], threads: [b, a, 2], dynamic_memory: a ^ b }
}

fn every_command(n: u64, bytes: &[u8]) -> Vec<Command<'_>> {
    let (a, b) = (n as u32, (n >> 7) as u32);
    vec![
        Command::Write { to: n, bytes: Bytes(bytes) },
        Command::Read { from: n, len: a % (MESSAGE_MAX as u32 + 1) },
        Command::Receive { to: n, len: n ^ 5, rank: a, tag: b },
        Command::Send { from: n, len: n ^ 9, rank: b, tag: a },
        Command::Copy { to: n, from: !n, len: n / 3 },
        Command::Launch { kernel: n, args: Args(&bytes[..bytes.len() / 8 * 8]), array: n.is_multiple_of(2) },
        Command::Wait { seq: n },
        Command::Image { image: a, rank: b, tag: a, len: n.max(1), libraries: n / 2, to: [Some((a / 2, b)), None] },
        Command::Load { image: b },
        Command::Unload { image: a },
        Command::Move { image: b },
        Command::Redirect { from: n, to: !n },
        Command::Obtain {
            len: n,
            exact: n.is_multiple_of(3),
            libraries: Bytes(bytes),
            taken: Ranges::of(&bytes[..bytes.len() / 16 * 16]),
        },
        Command::Avoid { taken: Ranges::of(&bytes[..bytes.len() / 16 * 16]) },
        Command::Entry { image: a, size: n, flags: b, name: Bytes(bytes) },
        Command::Address { image: b, name: Bytes(bytes) },
        Command::LaunchShaped { kernel: n, shape: shape(n), args: Args(&bytes[..bytes.len() / 8 * 8]) },
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read(n: u64, queue: u32, fresh: bool, core: u16, merged: u32, seq in 1u64.., bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut message = Vec::new();
        Head::begin(&mut message, queue, fresh);
        prop_assert_eq!(message.len(), HEAD_LEN);
        prop_assert!(Operations::open(&message).is_err(), "an unsent message is no message");
        let commands = every_command(n, &bytes);
        for c in &commands {
            let before = message.len();
            Writer(&mut message).push(*c);
            let len = message.len() - before;
            match c {
                Command::Launch { args, .. } => prop_assert_eq!(len, launch_len(args.iter().len(), false)),
                Command::LaunchShaped { args, .. } => prop_assert_eq!(len, launch_len(args.iter().len(), true)),
                Command::Obtain { .. } => prop_assert!(len <= COMMAND_MAX + 2 * bytes.len()),
                Command::Avoid { .. } => prop_assert!(len <= COMMAND_MAX + bytes.len()),
                Command::Entry { name: Bytes(data), .. }
                | Command::Address { name: Bytes(data), .. }
                | Command::Write { bytes: Bytes(data), .. } => prop_assert!(len <= COMMAND_MAX + data.len()),
                _ => prop_assert!(len <= COMMAND_MAX),
            }
        }
        Head::patch(&mut message, seq, core, merged);
        let (head, mut rest) = Operations::open(&message).unwrap();
        prop_assert_eq!(head, Head { seq, queue, fresh, core, merged });
        for c in commands {
            rest = Operations::resume(&message, rest.position(&message));
            prop_assert_eq!(rest.take().unwrap(), Some(c));
        }
        prop_assert_eq!(rest.take::<Command<'_>>().unwrap(), None);
    }

    #[test]
    fn ranges_are_what_was_encoded(ranges in prop::collection::vec((any::<u32>(), any::<u32>()), 0..9)) {
        let ranges: Vec<_> = ranges.iter().map(|&(at, len)| u64::from(at)..u64::from(at) + u64::from(len)).collect();
        let encoded = Ranges::encode(&ranges);
        prop_assert_eq!(Ranges::of(&encoded).iter().collect::<Vec<_>>(), ranges);
    }

    #[test]
    fn parts_are_the_whole(len in 1u64..1 << 40) {
        let all: Vec<_> = parts(len).collect();
        prop_assert!(all.len() <= IMAGE_PARTS);
        prop_assert!(all.iter().all(|p| !p.is_empty()));
        prop_assert!(all.windows(2).all(|w| w[0].end == w[1].start));
        prop_assert_eq!((all[0].start, all[all.len() - 1].end), (0, len as usize));
    }
}

#[test]
fn what_was_obtained_is_read_as_written() {
    let target = Target { machine: 190, architecture: 90 };
    let obtained = Obtained { arena: 0x1000..0x3000, target, description: "a GPU".into(), large: LargeCopies::Direct };
    let decode = |obtained: &Obtained| Obtained::decode(&obtained.encode().try_into().unwrap());
    let staging = Obtained { large: LargeCopies::Pinned, ..obtained.clone() };
    assert_eq!((decode(&obtained), decode(&staging)), (obtained.clone(), staging));
    let long = decode(&Obtained { description: "a GPU".repeat(100), ..obtained });
    assert!(long.description.len() == Obtained::LEN - Obtained::NUMBERS && long.description.starts_with("a GPUa GPU"));
}
