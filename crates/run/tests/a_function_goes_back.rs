//! A function goes back to what drove it before, and is taken from nobody who has it by then.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod kernel;

use std::collections::BTreeSet;
use std::time::Duration;

use kernel::{DRIVER, Stage, TAKEN, lent, nothing_set_aside};
use nearmetal_run::RunError;
use nearmetal_run::function::Lent;
use nearmetal_run::recover::{Recovered, recover, release};
use nearmetal_run::reservation::{Claim, NodeShare, Reservation};
use nearmetal_units::Bytes;

const NO_TIME: Duration = Duration::ZERO;

impl Stage {
    fn new() -> Self {
        Self::of(16)
    }

    /// A run that has the function, which libvirt has taken for its guest.
    fn run(&self, before: Lent) -> Claim {
        let reservation = Reservation {
            cpus: "1-2".parse().unwrap(),
            memory: vec![NodeShare { node: 0, bytes: Bytes::from_mib(64) }],
            functions: vec![before],
            ..Reservation::empty("run-job-1", "uuid", "job")
        };
        let claim = self.desk.turn().unwrap().reserve(reservation).unwrap();
        self.kernel.bind("vfio-pci");
        claim
    }

    fn release(&self, claim: Claim) -> Result<(), RunError> {
        release(&self.desk, claim, &self.kernel, NO_TIME)
    }

    /// What the next run gives back.
    fn recover(&self) -> Recovered {
        recover(&self.desk.turn().unwrap(), &self.kernel, &mut |_| Ok(()), &nothing_set_aside, NO_TIME).unwrap()
    }
}

#[test]
fn what_libvirt_has_given_back_is_left_alone() {
    let stage = Stage::new();
    let claim = stage.run(lent());
    stage.kernel.bind("igbvf");
    stage.release(claim).unwrap();
    assert_eq!((stage.kernel.driver(), stage.kernel.writes.get()), (DRIVER, 0));
}

#[test]
fn what_libvirt_leaves_goes_back_to_its_driver_its_override_or_none() {
    for (driver, only, after) in [
        (Some("igbvf"), None, DRIVER),
        (None, None, (None, "(null)")),
        (Some("vfio-pci"), None, TAKEN),
        (Some("vfio-pci"), Some("vfio-pci"), (Some("vfio-pci"), "vfio-pci")),
    ] {
        let stage = Stage::new();
        let own = |name: Option<&str>| name.map(str::to_owned);
        let claim = stage.run(Lent { driver: own(driver), only: own(only), ..lent() });
        stage.release(claim).unwrap();
        assert_eq!(stage.kernel.driver(), after);
        assert!(stage.desk.look().unwrap().is_empty());
    }
}

#[test]
fn a_function_that_somebody_holds_is_not_unbound_and_stays_the_runs_until_the_next_without_pus_and_memory() {
    let stage = Stage::new();
    let claim = stage.run(lent());
    stage.kernel.held.set(true);
    let error = stage.release(claim).unwrap_err().to_string();
    assert!(
        error.contains("the function 0000:39:10.0 could not be given back") && error.contains("/dev/vfio/12"),
        "{error}"
    );
    assert_eq!(stage.kernel.driver(), TAKEN);
    // Nobody gets it meanwhile.
    let recovered = stage.recover();
    assert!(recovered.names.is_empty() && recovered.problems[0].contains("0000:39:10.0"), "{recovered:?}");
    let has_it_alone = |stage: &Stage| {
        let others = stage.desk.turn().unwrap().others(&|_| false).unwrap();
        assert!(others[0].has(lent().function) && others[0].cpus.is_empty() && others[0].memory.is_empty());
    };
    has_it_alone(&stage);
    stage.kernel.held.set(false);
    assert_eq!(stage.recover().names, ["run-job-1"]);
    assert_eq!(stage.kernel.driver(), DRIVER);
    // So it is after a run that was killed, once its guest is gone.
    drop(stage.run(lent()));
    stage.kernel.held.set(true);
    assert_eq!(stage.recover().problems.len(), 1);
    has_it_alone(&stage);
    // While its QEMU is there it has all it had.
    let stage = Stage::new();
    let claim = stage.run(lent());
    stage.kernel.held.set(true);
    stage.kernel.lives.set(true);
    stage.release(claim).unwrap_err();
    let others = stage.desk.turn().unwrap().others(&|_| true).unwrap();
    assert!(!others[0].cpus.is_empty(), "{others:?}");
}

#[test]
fn what_another_guest_has_by_now_was_removed_or_is_another_device_is_nobodys_to_give_back() {
    let dead = || {
        let stage = Stage::new();
        drop(stage.run(lent()));
        stage
    };
    let stage = dead();
    stage.kernel.held.set(true);
    stage.kernel.holder.set(Some("db"));
    assert_eq!((stage.recover().names.len(), stage.kernel.driver()), (1, TAKEN));

    // Its owner has given it to another driver since.
    let stage = dead();
    stage.kernel.bind("uio_pci_generic");
    assert_eq!((stage.recover().names.len(), stage.kernel.driver().0), (1, Some("uio_pci_generic")));

    // Or has kept it for guests, for which VFIO drives it.
    let (stage, kept) = (dead(), || BTreeSet::from([lent().function]));
    let recovered = recover(&stage.desk.turn().unwrap(), &stage.kernel, &mut |_| Ok(()), &kept, NO_TIME).unwrap();
    assert_eq!((recovered.names.len(), stage.kernel.driver(), stage.kernel.writes.get()), (1, TAKEN, 0));

    let stage = dead();
    stage.kernel.remove();
    assert_eq!(stage.recover().names.len(), 1);

    let stage = Stage::new();
    drop(stage.run(Lent { id: "0x15b3:0x101e".to_owned(), ..lent() }));
    assert_eq!((stage.recover().names.len(), stage.kernel.driver()), (1, TAKEN));
    assert_eq!(stage.kernel.writes.get(), 0);
}

/// Whoever may write a reservation is not thereby one who may have root bind a driver.
#[test]
fn what_another_user_says_binds_nothing() {
    let stage = Stage::new();
    drop(stage.run(lent()));
    let other = stage.desk.clone().seen_by(4_000_000_000);
    let recovered =
        recover(&other.turn().unwrap(), &stage.kernel, &mut |_| Ok(()), &nothing_set_aside, NO_TIME).unwrap();
    assert_eq!((recovered, stage.kernel.driver()), (Recovered::default(), TAKEN));
    assert_eq!(stage.kernel.writes.get(), 0);
}
