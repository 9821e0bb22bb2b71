// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/workers/proxy.rs`: the test is the worker and its snapshot.

use super::super::process::{Birth, connect};
use super::*;
use crate::base::sync::Mutex;
use crate::link::doorbell::Doorbells;
use crate::link::{Link, Transport};
use crate::mpi::{Received, Request};
use crate::wire::command::{CONTROL, Command, Operation, Writer};
use crate::wire::control::Control;
use crate::wire::record::Record;
use std::sync::Arc;

/// Keeps what is sent to the host.
struct ToHost(Arc<Mutex<Vec<Vec<u8>>>>);

impl Transport for ToHost {
    unsafe fn send(&mut self, _: usize, _: u32, data: *const u8, len: usize) -> Result<Request> {
        // SAFETY: the caller's promise.
        self.0.lock().push(unsafe { std::slice::from_raw_parts(data, len) }.to_vec());
        Ok(Request(0))
    }
    unsafe fn receive(&mut self, _: Option<usize>, _: u32, _: *mut u8, _: usize) -> Result<Request> {
        Ok(Request(0))
    }
    unsafe fn test(&mut self, _: &mut Request) -> Result<Option<Received>> {
        Ok(None)
    }
    unsafe fn cancel(&mut self, _: Request) {}
    fn finish(&mut self) {}
    fn abort(&mut self, code: i32) -> ! {
        panic!("aborted with {code}")
    }
}

struct Test {
    proxy: WorkerProxy,
    worker: Birth,
    generation: u32,
    to_host: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Test {
    /// A worker that may be replaced twice.
    fn new() -> Test {
        let to_host = Arc::default();
        let transport = Box::new(ToHost(Arc::clone(&to_host)));
        let link = Link::new(transport, usize::MAX, Doorbells::default(), Vec::new()).unwrap();
        let (started, worker) = connect().unwrap();
        let terms = Terms { keeps: true, limit: 1 << 20, host: 0, fragment: 100 };
        let uplink = Uplink::new(Arc::new(link), 0, 0, false);
        let mut proxy = WorkerProxy::new("a worker".into(), started, uplink, terms, 2);
        proxy.checkpoints.pretend();
        Test { proxy, worker, generation: 0, to_host }
    }

    fn poll(&mut self) {
        while self.proxy.poll(&mut vec![0; packet::PACKET_MAX]).unwrap() {}
    }

    fn host_sends(&mut self, seq: u64, queue: u32, operation: impl Operation<'static>) {
        let mut message = Vec::new();
        Head::begin(&mut message, queue, true);
        Writer(&mut message).push(operation);
        Head::patch(&mut message, seq, 0, 0);
        self.proxy.on_host_message(&message).unwrap();
        self.poll();
    }

    fn worker_sends(&mut self, packet: &Packet<'_>) {
        let mut bytes = Vec::new();
        packet.write(self.generation, &mut bytes);
        assert!(packet::send(&self.worker.socket, &bytes, false).unwrap());
        self.poll();
    }

    fn answers(&mut self, seq: u64) {
        self.worker_sends(&Packet::Message(&done(seq)));
    }

    /// The numbers of the messages that the worker has received, and 0 if it knows that its replay is over.
    fn received(&self) -> Vec<u64> {
        let (mut numbers, mut buffer) = (Vec::new(), vec![0; packet::PACKET_MAX]);
        while let Some(len) = packet::receive(&self.worker.socket, &mut buffer, false).unwrap() {
            match Packet::parse(&buffer[..len]).unwrap().1 {
                Packet::Message(message) => numbers.push(Operations::open(message).unwrap().0.seq),
                Packet::Replayed => numbers.push(0),
                packet => panic!("{packet:?}"),
            }
        }
        numbers
    }

    /// The worker is killed, and its snapshot starts another one.
    fn replace(&mut self) {
        self.received();
        self.proxy.on_exit(libc::SIGKILL, &mut Kills::so_far(), &mut vec![0; packet::PACKET_MAX]).unwrap();
        self.generation += 1;
        // No process has this process id.
        self.worker_sends(&Packet::Awake { pid: i32::MAX as u32 });
    }

    /// What the host has got since the last call.
    fn at_host(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut *self.to_host.lock())
    }
}

fn done(seq: u64) -> Vec<u8> {
    let mut reply = Vec::new();
    reply::begin_done(&mut reply, seq);
    reply
}

fn records(number: u64) -> Vec<u8> {
    let mut reply = Vec::new();
    reply::begin_records(&mut reply);
    Record::Dropped(number).write(&mut reply);
    reply
}

const READ: Command<'_> = Command::Read { from: 0, len: 8 };

#[test]
fn a_worker_learns_when_its_replay_is_over() {
    let mut test = Test::new();
    (1..=3).for_each(|seq| test.host_sends(seq, seq as u32, READ));
    test.answers(2);
    test.replace();
    assert_eq!(test.received(), [1, 2, 3]);
    test.answers(3);
    assert!(test.received().is_empty());
    test.answers(2);
    assert_eq!(test.received(), [0]);
    assert_eq!(test.at_host(), [done(2), done(3)]);
}

/// A worker is killed when it has sent its records and has not answered the request for them.
#[test]
fn records_come_with_the_answer_to_their_request() {
    let mut test = Test::new();
    test.host_sends(1, 1, READ);
    test.answers(1);
    test.host_sends(2, CONTROL, Control::Recall);
    test.worker_sends(&Packet::Message(&records(1)));
    test.replace();
    test.answers(1);
    test.worker_sends(&Packet::Message(&records(2)));
    test.answers(2);
    assert_eq!(test.at_host(), [done(1), records(2), done(2)]);
    // The host has them.
    test.replace();
    test.answers(1);
    test.worker_sends(&Packet::Message(&records(3)));
    test.answers(2);
    assert!(test.at_host().is_empty());
}

/// A worker is killed before it has sent its records, while the answer to another message is missing in the replay.
#[test]
fn records_are_not_lost_in_a_replay() {
    let mut test = Test::new();
    test.host_sends(1, 1, READ);
    test.host_sends(2, CONTROL, Control::Recall);
    test.answers(1);
    test.replace();
    test.worker_sends(&Packet::Message(&records(1)));
    test.answers(2);
    test.answers(1);
    assert_eq!(test.at_host(), [done(1), records(1), done(2)]);
}
