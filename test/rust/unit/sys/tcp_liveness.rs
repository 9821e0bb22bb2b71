// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/sys/tcp_liveness.rs`.

use super::*;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

#[test]
fn a_peer_that_does_not_read_is_not_gone() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let _far = listener.accept().unwrap();
    assert!(ask_when_quiet(near.as_raw_fd(), Duration::from_secs(1)));
    near.set_nonblocking(true).unwrap();
    while near.write(&[0; 65536]).is_ok() {}
    for _ in 0..30 {
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(quiet(near.as_raw_fd()), None);
    }
}

#[test]
fn other_files_are_no_connections() {
    let null = std::fs::File::open("/dev/null").unwrap();
    assert!(!ask_when_quiet(null.as_raw_fd(), Duration::from_secs(1)));
    assert_eq!(quiet(null.as_raw_fd()), None);
}
