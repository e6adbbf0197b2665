//! The verbs layer between two hosts, on RoCE and on iWARP: `verbs_pair` (an example of rsock-core) moves and checks bytes both ways while the
//! world around it breaks. Whatever breaks, each end that lives is told within seconds, and what breaks can be mended.
//!
//! Ignored by default, since it boots two virtual hosts: `cargo test -p rsock-tests --test fabric_verbs -- --ignored --nocapture`.

use rsock_tests::fabric::{Fabric, Host, Job};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A transport as the fabric has it.
struct Transport {
    name: &'static str,
    v4: &'static str,
    v6: &'static str,
    /// Its RDMA device and how to make it, and the network device below.
    device: &'static str,
    kind: &'static str,
    network: &'static str,
}

const TRANSPORTS: [Transport; 2] = [
    Transport {
        name: "roce",
        v4: "192.0.2.1",
        v6: "[2001:db8::1]",
        device: "rxe0",
        kind: "rxe",
        network: "eth0",
    },
    Transport {
        name: "iwarp",
        v4: "198.51.100.1",
        v6: "[2001:db8:1::1]",
        device: "siw0",
        kind: "siw",
        network: "eth1",
    },
];

const ENDLESS: u64 = 1 << 40;
/// Exit code of verbs_pair when its queue pair is lost.
const LOST: i32 = 3;

struct Pair<'a> {
    fabric: &'a Fabric,
    program: PathBuf,
}

impl Pair<'_> {
    fn start(&self, address: &str, bytes: u64) -> (Job, Job) {
        let program = self.program.display();
        let listener = self.fabric.spawn(
            Host::A,
            &format!("exec timeout 100 {program} listen {address}:5000 {bytes}"),
        );
        self.fabric.await_output(&listener, "listening", 30);
        let connector = self.fabric.spawn(
            Host::B,
            &format!("exec timeout 100 {program} connect {address}:5000 {bytes}"),
        );
        (listener, connector)
    }

    /// A transfer that has to succeed.
    fn transfer(&self, what: &str, address: &str, bytes: u64) {
        let (listener, connector) = self.start(address, bytes);
        let (b, a) = (
            self.fabric.wait(&connector, 110),
            self.fabric.wait(&listener, 20),
        );
        assert!(a.code == 0 && b.code == 0, "{what}\na: {a}\nb: {b}");
        println!(
            "ok  {what}: {}",
            b.out
                .lines()
                .find(|l| l.contains("each way"))
                .unwrap_or_default()
        );
    }

    /// An endless transfer into which `fault` happens: the ends that live notice.
    fn broken(&self, what: &str, address: &str, alive: &[Host], fault: impl FnOnce()) {
        let (listener, connector) = self.start(address, ENDLESS);
        self.fabric.await_output(&connector, "connected", 60);
        self.fabric.await_output(&listener, "wants", 5);
        std::thread::sleep(std::time::Duration::from_secs(1));
        fault();
        for (host, job) in [(Host::A, listener), (Host::B, connector)] {
            let ran = self.fabric.wait(&job, 60);
            if alive.contains(&host) {
                assert_eq!(ran.code, LOST, "{what}, {host:?}: {ran}");
            }
        }
        println!("ok  {what}");
    }
}

/// The example, built by whoever runs this test.
fn program() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args([
            "build",
            "--quiet",
            "-p",
            "rsock-core",
            "--example",
            "verbs_pair",
        ])
        .status();
    assert!(built.expect("cargo can be started").success());
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .expect("it is in the target directory");
    target.join("debug/examples/verbs_pair")
}

#[test]
#[ignore = "boots two virtual hosts"]
fn queue_pairs_carry_bytes_and_break_cleanly() {
    let program = program();
    let Some(fabric) = Fabric::boot("both") else {
        return;
    };
    let pair = Pair {
        fabric: &fabric,
        program,
    };
    let both = [Host::A, Host::B];
    for Transport {
        name,
        v4,
        v6,
        device,
        kind,
        network,
    } in TRANSPORTS
    {
        let delete = format!("rdma link delete {device}");
        let add = format!("rdma link add {device} type {kind} netdev {network}");
        pair.transfer(&format!("{name}, IPv4"), v4, 4 << 20);
        pair.transfer(&format!("{name}, IPv6"), v6, 1 << 20);
        for host in both {
            pair.broken(
                &format!("{name}: device of {host:?} removed"),
                v4,
                &both,
                || drop(fabric.must(host, &delete)),
            );
            fabric.must(host, &add);
        }
        pair.transfer(
            &format!("{name}, after both devices came back"),
            v4,
            1 << 20,
        );
        for (host, other) in [(Host::A, Host::B), (Host::B, Host::A)] {
            pair.broken(
                &format!("{name}: process of {host:?} killed"),
                v4,
                &[other],
                || drop(fabric.must(host, "pkill -KILL verbs_pair")),
            );
        }
        pair.broken(&format!("{name}: link down"), v4, &both, || {
            drop(fabric.must(Host::A, &format!("ip link set {network} down")))
        });
        fabric.must(Host::A, &format!("ip link set {network} up"));
        if kind == "rxe" {
            // rdma_rxe's own queue pair for management goes into error when it sends over a link that is down, and stays there.
            fabric.must(Host::A, &format!("{delete}; {add}"));
        }
        let netem = |what: &str| {
            fabric.must(
                Host::B,
                &format!("tc qdisc replace dev {network} root netem {what}"),
            )
        };
        pair.broken(&format!("{name}: every packet lost"), v4, &both, || {
            drop(netem("loss 100%"))
        });
        netem("delay 1ms loss 0.3% duplicate 1%");
        pair.transfer(&format!("{name}, on a poor network"), v4, 256 << 10);
        // Disorder is too much for RoCE, which sends everything again from the first gap: the link may be given up, but nothing is ever wrong.
        netem("delay 1ms 1ms loss 1% reorder 5%");
        let (listener, connector) = pair.start(v4, 256 << 10);
        for job in [connector, listener] {
            let ran = fabric.wait(&job, 110);
            assert!(ran.code == 0 || ran.code == LOST, "{name}, disorder: {ran}");
        }
        println!("ok  {name}, disorder");
        fabric.must(Host::B, &format!("tc qdisc del dev {network} root"));
    }
    let program = pair.program.display();
    let poor = format!(
        "ulimit -l 64; exec setpriv --reuid 65534 --clear-groups --bounding-set=-all {program} connect 192.0.2.1:5000"
    );
    let (listener, _) = pair.start(TRANSPORTS[0].v4, ENDLESS);
    let ran = fabric.run(Host::B, &poor);
    assert!(
        ran.code == 1 && ran.err.contains("ulimit -l"),
        "a low memory limit: {ran}"
    );
    fabric.must(Host::A, "pkill -KILL verbs_pair");
    fabric.wait(&listener, 20);
    println!("ok  a low limit on locked memory");
    for Transport { name, v4, .. } in TRANSPORTS {
        pair.broken(&format!("{name}: host B killed"), v4, &[Host::A], || {
            fabric.kill(Host::B)
        });
        fabric.reboot(Host::B);
        pair.transfer(&format!("{name}, after host B came back"), v4, 1 << 20);
    }
}
