//! What runs in a guest of a tile.

use std::net::{IpAddr, SocketAddr};

use nearmetal_units::Bytes;

use super::{Role, TileSize};
use crate::At;

/// Where a program of the image finds the probe (`nearmetal-probe programs`).
const PROBE_IN_IMAGE: &str = "/run/nearmetal-probe";
const DATABASE: &str = "/usr/lib/nearmetal/database/serve";
const JAVA: &str = "/usr/lib/nearmetal/java/runtime/bin/java";
const CLASSES: &str = "/usr/lib/nearmetal/java/classes:/usr/lib/nearmetal/java/mariadb.jar";
const MAIN: &str = "shop.Main";
/// Where contents are: in the guest's memory, so that tiles need no drives.
const CONTENTS: &str = "/run/served";
/// How long the probe's own responder answers: longer than any measurement, seconds.
const DAY: u32 = 86_400;

/// Addresses of the guests of one tile that others of it ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peers {
    /// The guest with the large files of the web server; unspecified where the tile has none, and the web server has them all.
    pub infra: IpAddr,
    /// The guest with the database of the application.
    pub db: IpAddr,
}

impl Role {
    /// The words that run in the guest in the foreground and serve until they are killed. The port is open once everything that
    /// is served is there: to find it open is to find the server ready.
    ///
    /// An application waits for its database, so that one has to be started, and need not be ready.
    pub fn server(self, at: &At<'_>, size: &TileSize, peers: &Peers) -> Vec<String> {
        let tile = u64::from(size.tile).to_string();
        let port = self.port().to_string();
        match self {
            Self::Idle => {
                let listen = format!("0.0.0.0:{port}");
                let day = DAY.to_string();
                words(&[
                    at.probe,
                    "load",
                    "respond",
                    "http",
                    "--listen",
                    &listen,
                    "--seconds",
                    &day,
                    "--site",
                    &tile,
                    "--directories",
                    "1",
                ])
            }
            Self::Infra | Self::Web => {
                let directories = size.directories().to_string();
                let from = SocketAddr::new(peers.infra, Self::Infra.port()).to_string();
                let mut program = words(&[
                    PROBE_IN_IMAGE,
                    "serve",
                    "web",
                    "--directory",
                    CONTENTS,
                    "--port",
                    &port,
                    "--site",
                    &tile,
                    "--directories",
                    &directories,
                ]);
                if self == Self::Web && !peers.infra.is_unspecified() {
                    program.extend(words(&["--large-files-from", &from]));
                }
                at.in_the_image(&[], program)
            }
            Self::Mail => {
                let (users, messages) = (size.users().to_string(), size.messages().to_string());
                let program = words(&[
                    PROBE_IN_IMAGE,
                    "serve",
                    "mail",
                    "--directory",
                    CONTENTS,
                    "--port",
                    &port,
                    "--mail",
                    &tile,
                    "--users",
                    &users,
                    "--messages",
                    &messages,
                ]);
                at.in_the_image(&[], program)
            }
            Self::Db => {
                let numbers = [
                    size.pool().get(),
                    size.tables().into(),
                    size.rows().into(),
                    size.tile.into(),
                    size.items().into(),
                ];
                let mut program = words(&[DATABASE, CONTENTS]);
                program.extend(numbers.map(|number| number.to_string()));
                program.push(port);
                at.in_the_image(&[], program)
            }
            Self::App => at.in_the_image(&[], application(size, peers, &port, &tile)),
        }
    }

    /// What is written before it serves.
    fn contents(self, size: &TileSize) -> Bytes {
        match self {
            Self::App | Self::Idle => Bytes::ZERO,
            Self::Infra => size.site(),
            // The smaller nine tenths of the files are a tenth of the bytes.
            Self::Web => Bytes::new(size.site().get() / 10),
            Self::Mail => size.mail(),
            Self::Db => size.data(),
        }
    }

    /// What it holds in the guest's memory once it has served so many samples.
    fn holds(self, size: &TileSize, samples: u32) -> Bytes {
        // Logs, and what the file system of memory rounds up.
        const BESIDE: Bytes = Bytes::from_mib(16);
        match self {
            Self::App | Self::Idle => Bytes::ZERO,
            // Pages split, and old versions of rows stay for a while. The redo log has 32 MiB, and there are undo, temporary tables
            // and the doublewrite buffer.
            Self::Db => self.contents(size).times(2).plus(Bytes::from_mib(96)),
            Self::Infra | Self::Web => self.contents(size).plus(BESIDE),
            // Nobody deletes what is appended, and each sample may be tried twice.
            Self::Mail => self.contents(size).plus(size.appended(2 * samples)).plus(BESIDE),
        }
    }

    /// Memory that a guest needs for it: its system, the program, and what it holds once it has served so many samples.
    pub fn memory(self, size: &TileSize, samples: u32) -> Bytes {
        /// The appliance: its kernel, its initramfs (22 MB), and the parts of the loads image that are in use.
        const SYSTEM: Bytes = Bytes::from_mib(256);
        const KERNEL: Bytes = Bytes::from_mib(64);
        let program = match self {
            Self::Idle => Bytes::ZERO,
            // A process for each session.
            Self::Mail => Bytes::from_mib(64),
            Self::Infra | Self::Web => Bytes::from_mib(32),
            Self::App => Bytes::from_mib(size.heap_mib() + 96),
            // 51 MiB more than its pool were seen with the smallest.
            Self::Db => size.pool().plus(Bytes::from_mib(96)),
        };
        let held = self.holds(size, samples);
        // /run has half of the memory that the kernel leaves.
        let needed = SYSTEM.plus(program).plus(held).max(held.times(2).plus(KERNEL));
        Bytes::from_mib((needed.kib() / 1024).next_multiple_of(32))
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A JVM of which nothing is left to the machine it finds itself on.
fn application(size: &TileSize, peers: &Peers, port: &str, seed: &str) -> Vec<String> {
    let heap = size.heap_mib();
    let mut program = words(&[JAVA, &format!("-Xms{heap}m"), &format!("-Xmx{heap}m"), "-XX:+UseParallelGC"]);
    // Its counters would be a file in /tmp that somebody could read.
    program.extend(words(&["-XX:-UsePerfData"]));
    if size.emulated {
        // An emulated machine is long at what the second compiler does.
        program.extend(words(&["-XX:TieredStopAtLevel=1"]));
    }
    let database = SocketAddr::new(peers.db, Role::Db.port());
    // Nothing is encrypted: the network is a test's, and the driver would look for a certificate.
    let url = format!("jdbc:mariadb://{database}/shop?user=root&useSsl=false");
    let (threads, items) = (size.desks().to_string(), size.items().to_string());
    let patience = size.patience().to_string();
    program.extend(words(&["-cp", CLASSES, MAIN, port, &url, &threads, &items, seed, &patience]));
    program
}

#[cfg(test)]
mod tests {
    use super::super::Scale;
    use super::*;

    fn size(scale: f64) -> TileSize {
        TileSize { tile: 3, scale: Scale::try_from(scale).unwrap(), seconds: 30, ramp: 5, emulated: scale < 1.0 }
    }

    fn peers() -> Peers {
        Peers { infra: [192, 0, 2, 1].into(), db: [192, 0, 2, 5].into() }
    }

    fn line(role: Role) -> String {
        let at = At { loads: "serial:nearmetal-loads", ..At::probe("/p") };
        role.server(&at, &size(0.01), &peers()).join(" ")
    }

    #[test]
    fn each_serves_at_its_own_port_what_its_driver_expects() {
        assert_eq!(
            line(Role::Web),
            "/p programs --image serial:nearmetal-loads -- /run/nearmetal-probe serve web --directory /run/served --port 80 \
             --site 3 --directories 1 --large-files-from 192.0.2.1:80"
        );
        assert!(line(Role::Infra).ends_with("--port 80 --site 3 --directories 1"));
        let alone = Peers { infra: [0, 0, 0, 0].into(), ..peers() };
        let words = Role::Web.server(&At::probe("/p"), &size(0.01), &alone).join(" ");
        assert!(!words.contains("--large-files-from"), "{words}");
        assert!(line(Role::Mail).ends_with("--port 143 --mail 3 --users 4 --messages 10"));
        assert!(line(Role::Db).ends_with(&format!("{DATABASE} /run/served 33554432 4 500 3 100 3306")));
        assert!(
            line(Role::App)
                .ends_with("shop.Main 8080 jdbc:mariadb://192.0.2.5:3306/shop?user=root&useSsl=false 4 100 3 600")
        );
        assert_eq!(
            line(Role::Idle),
            "/p load respond http --listen 0.0.0.0:80 --seconds 86400 --site 3 --directories 1"
        );
    }

    #[test]
    fn a_guest_has_room_for_what_it_holds_and_a_lab_for_its_guests() {
        for role in Role::ALL {
            for (scale, samples) in [(0.01, 2), (1.0, 3), (4.0, 3), (1.0, 100)] {
                let (memory, held) = (role.memory(&size(scale), samples), role.holds(&size(scale), samples));
                assert!(memory.get() / 2 > held.get(), "{role}: half of {memory} is /run, and it holds {held}");
                assert!(memory >= Bytes::from_mib(256));
            }
        }
        // A site of 400 MB needs twice that, and mail grows with every sample.
        assert!(Role::Infra.memory(&size(4.0), 3) > Bytes::from_mib(800));
        assert!(Role::Mail.memory(&size(1.0), 100) > Role::Mail.memory(&size(1.0), 3).plus(Bytes::from_mib(512)));
        // A node of the lab machine quad-tiles has 4 GiB, and its own system in them.
        let all: u64 = Role::ALL.iter().map(|role| role.memory(&size(0.01), 3).kib() / 1024).sum();
        assert!(all <= 3_072, "{all} MiB");
    }
}
