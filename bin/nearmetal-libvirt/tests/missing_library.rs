//! What the dynamic loader really says where libvirt is not installed: the helper is copied with another name of the
//! library in it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nearmetal_host::files;
use nearmetal_hypervisor::{HypervisorError, Libvirt};

#[test]
fn without_the_library_the_error_says_what_to_install() {
    let (name, other) = (b"\0libvirt.so.0\0", b"\0libvirX.so.0\0");
    let mut bytes = files::read(Path::new(env!("CARGO_BIN_EXE_nearmetal-libvirt"))).unwrap();
    let place = bytes.windows(name.len()).position(|window| window == name).unwrap();
    bytes[place..place + name.len()].copy_from_slice(other);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nearmetal-libvirt");
    files::write(&path, bytes).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    let error = Libvirt::with_helper(&path, "test:///default").unwrap_err();
    assert_eq!(error, HypervisorError::LibvirtMissing { library: "libvirX.so.0".into() });
}
