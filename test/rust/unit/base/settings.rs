// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/base/settings.rs`.

use super::*;
use std::path::Path;

impl Default for Settings {
    fn default() -> Self {
        Settings::read(|_| None).expect("the defaults are allowed values")
    }
}

const TABLE: &str = "docs/user/configuration.md";
const BEGIN: &str = "<!-- settings: begin -->\n";
const END: &str = "<!-- settings: end -->\n";

fn markdown() -> String {
    let row = |s: Setting| {
        let default = match s.default {
            Value(text) => format!("`{text}`"),
            Unset(text) => text.into(),
        };
        format!("| `{}` | {default} | {} | {} |\n", s.name, s.values, s.meaning)
    };
    let head = "| Variable | Default | Values | Meaning |\n| --- | --- | --- | --- |\n";
    table().into_iter().map(row).fold(head.into(), |all: String, row| all + &row)
}

#[test]
fn the_documented_table_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(TABLE);
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("a line where the table begins");
    let (_, after) = rest.split_once(END).expect("a line where the table ends");
    let generated = [before, BEGIN, &markdown(), END, after].concat();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).unwrap() == generated,
        "{TABLE} differs from src/base/settings.rs; to update it: UPDATE_DOCS=1 cargo test --lib settings"
    );
}

fn read(name: &str, value: &str) -> Result<Settings> {
    Settings::read(|variable| (variable.strip_prefix(PREFIX) == Some(name)).then(|| value.into()))
}

#[test]
fn what_is_not_set_has_its_default() {
    let s = Settings::default();
    assert_eq!((s.bind, s.fragment, s.journal), (Bind::Share, 16 << 20, 256 << 20));
    assert_eq!((s.start_timeout, s.heartbeat), (Duration::from_secs(60), Duration::from_secs(5)));
    assert_eq!((s.devices, s.devices_per_rank, s.spares, s.hosts), (None, 1, 0, None));
    assert_eq!((s.memory, s.kernel_timeout, s.stats, s.trace), (None, None, false, None));
}

#[test]
fn values_are_read() {
    let of = Settings::default;
    for (name, value, wanted) in [
        ("MEMORY", "3G", Settings { memory: Some(3 << 30), ..of() }),
        ("FRAGMENT_SIZE", " 64k ", Settings { fragment: 65536, ..of() }),
        ("KERNEL_TIMEOUT", " 0.5", Settings { kernel_timeout: Some(Duration::from_millis(500)), ..of() }),
        ("KERNEL_TIMEOUT", "60", Settings { kernel_timeout: Some(Duration::from_secs(60)), ..of() }),
        ("KERNEL_TIMEOUT", "0", of()),
        ("HEARTBEAT", "0", Settings { heartbeat: Duration::ZERO, ..of() }),
        ("STATS", "1", Settings { stats: true, ..of() }),
        ("STATS", "0", of()),
        ("GPU_DIRECT", "on", Settings { gpu_direct: GpuDirect::On, ..of() }),
        ("TRACE", "a b", Settings { trace: Some("a b".into()), ..of() }),
        ("TRACE", "", of()),
    ] {
        assert_eq!(read(name, value).unwrap(), wanted, "{name}={value}");
    }
}

#[test]
fn nonsense_is_refused_with_the_range() {
    for (name, values, range) in [
        (
            "FRAGMENT_SIZE",
            &["", "-1", "12x", "0", "K", "99999999999999999999", "17179869184G", "1é"][..],
            "4096 to 1073741824",
        ),
        ("KERNEL_TIMEOUT", &["", "x", "-1", "0.0001", "nan", "inf", "1K"], "0.001 to 1000000000"),
        ("HEARTBEAT", &["0.5"], "0 to 86400"),
        ("BIND", &["core"], "'node'"),
        ("STATS", &["yes"], "neither 0 nor 1"),
        ("HOST_DEVICES", &["4"], "neither 0 nor 1"),
    ] {
        for bad in values {
            let e = read(name, bad).unwrap_err().to_string();
            assert!(e.contains(range), "{bad}: {e}");
        }
    }
}

#[test]
fn accelerators_have_no_worker_processes() {
    let check = |settings: Settings| settings.check().map_err(|e| e.to_string());
    let accelerator = Settings { backend: Backend::Offload, ..Settings::default() };
    assert!(check(accelerator.clone()).is_ok());
    for settings in [Settings { spares: 1, ..accelerator.clone() }, Settings { devices_per_rank: 2, ..accelerator }] {
        assert!(check(settings.clone()).unwrap_err().contains("does not survive a fork"));
        assert!(check(Settings { backend: Backend::Cpu, ..settings }).is_ok());
    }
}
