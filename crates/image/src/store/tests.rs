use std::os::unix::fs::PermissionsExt;

use super::incoming::{Found, Incoming, IncomingError, put_aside};
use super::*;
use crate::hash::{BLOCK, PIECE};

fn content(seed: u8) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..3 * PIECE + 5000).map(|at| (at / 7) as u8 ^ (at / 4096) as u8 ^ seed).collect();
    bytes[PIECE + BLOCK..2 * PIECE].fill(0);
    bytes
}

fn manifest(bytes: &[u8]) -> Manifest {
    Manifest::of(bytes, bytes.len() as u64, |_| ()).unwrap()
}

fn piece(bytes: &[u8], index: usize) -> &[u8] {
    &bytes[index * PIECE..bytes.len().min((index + 1) * PIECE)]
}

fn open(store: &Store, manifest: &Manifest) -> Incoming {
    Incoming::open(store, &manifest.id(), manifest.length(), manifest.data_bytes()).unwrap()
}

fn put(store: &Store, bytes: &[u8], name: &str) -> ImageId {
    let manifest = manifest(bytes);
    let incoming = open(store, &manifest);
    for index in 0..manifest.count() {
        incoming.write(index, piece(bytes, index), u64::MAX, manifest.piece(index).unwrap().data).unwrap();
    }
    incoming.finish(&manifest, name).unwrap();
    manifest.id()
}

fn look(store: &Store, manifest: &Manifest) -> Vec<Found> {
    let incoming = open(store, manifest);
    let reuse = incoming.reuse(manifest);
    (0..manifest.count()).map(|index| incoming.look(manifest, &reuse, index).unwrap()).collect()
}

#[test]
fn an_image_that_was_put_is_listed_found_and_right_and_its_holes_are_holes() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::at(directory.path().join("images"));
    assert_eq!(store.list().unwrap(), []);
    let bytes = content(0);
    let id = put(&store, &bytes, "debian");
    let all = store.list().unwrap();
    assert_eq!((all.len(), all[0].name.as_deref(), all[0].length), (1, Some("debian"), bytes.len() as u64));
    assert!(all[0].allocated < all[0].length - 60 * BLOCK as u64, "{}", all[0].allocated);
    assert!(store.verify(&id, |_| ()).right);
    assert_eq!(store.find("debian").unwrap().image, id);
    assert_eq!(store.find(&id.short()).unwrap().image, id);
    assert!(matches!(store.find("ab"), Err(FindError::None { .. })));
    assert_eq!(files::read(&store.path(&id)).unwrap(), bytes);
    store.remove(&id).unwrap();
    assert_eq!(store.list().unwrap(), []);
}

#[test]
fn a_flipped_byte_is_found_and_its_place_named() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::at(directory.path());
    let mut bytes = content(0);
    let id = put(&store, &bytes, "debian");
    bytes[2 * PIECE + 17] ^= 1;
    files::remove(&store.path(&id)).unwrap();
    files::write(&store.path(&id), &bytes).unwrap();
    let verified = store.verify(&id, |_| ());
    assert_eq!((verified.right, verified.damaged), (false, vec![2 * PIECE as u64]));
}

#[test]
fn what_is_there_of_an_earlier_push_is_kept_if_it_proves_right() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::at(directory.path());
    let bytes = content(0);
    let manifest = manifest(&bytes);
    let incoming = open(&store, &manifest);
    for index in [0, 1] {
        incoming.write(index, piece(&bytes, index), u64::MAX, u64::MAX).unwrap();
    }
    drop(incoming);
    let path = directory.path().join(".incoming").join(manifest.id().to_string());
    let mut part = files::read(&path).unwrap();
    part[5] ^= 1;
    files::write(&path, part).unwrap();
    let lacking = Found::Lacking(u64::MAX);
    assert_eq!(look(&store, &manifest), [lacking, Found::Kept, lacking, lacking]);
}

#[test]
fn blocks_of_another_image_are_reused_wherever_they_lie_and_only_the_rest_is_lacking() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::at(directory.path());
    let old = content(0);
    put(&store, &old, "old");
    let mut new = [vec![9; 2 * BLOCK], old].concat();
    new[PIECE + 3] ^= 0x55;
    let manifest = manifest(&new);
    let found = look(&store, &manifest);
    assert_eq!(found[0], Found::Lacking(3));
    assert_eq!(found[1], Found::Lacking(1));
    assert_eq!(&found[2..3], [Found::Reused]);
}

#[test]
fn a_damaged_block_of_another_image_is_not_reused() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::at(directory.path());
    let old = content(0);
    let id = put(&store, &old, "old");
    let mut damaged = old.clone();
    damaged[2 * PIECE + 9] ^= 1;
    files::remove(&store.path(&id)).unwrap();
    files::write(&store.path(&id), damaged).unwrap();
    let new = [old, vec![7; 100]].concat();
    let found = look(&store, &manifest(&new));
    assert_eq!((found[0], found[1], found[2]), (Found::Reused, Found::Reused, Found::Lacking(u64::MAX)));
}

#[test]
fn a_second_push_of_the_same_image_is_refused_while_the_first_one_runs() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::at(directory.path());
    let manifest = manifest(&content(0));
    let _first = open(&store, &manifest);
    let second = Incoming::open(&store, &manifest.id(), manifest.length(), manifest.data_bytes());
    assert!(matches!(second, Err(IncomingError::Busy(_))));
}

#[test]
fn a_second_push_leaves_the_image_that_the_first_one_is_about_to_name_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::at(directory.path());
    let manifest = manifest(&content(0));
    let first = open(&store, &manifest);
    // As it is at the end of the first one, while it is written to the disk.
    first.file().set_permissions(PermissionsExt::from_mode(0o444)).unwrap();
    let second = Incoming::open(&store, &manifest.id(), manifest.length(), manifest.data_bytes());
    assert!(matches!(second, Err(IncomingError::Busy(_))));
    assert_eq!(first.file().metadata().unwrap().mode() & 0o777, 0o444);
    drop(first);
    assert!(open(&store, &manifest).is_resumed(), "once the first one is gone, the next takes it up");
}

#[test]
fn an_image_for_which_there_is_no_room_is_refused_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::at(directory.path());
    let manifest = manifest(&content(0));
    let error = Incoming::open(&store, &manifest.id(), manifest.length(), 1 << 60).err().unwrap();
    assert!(error.to_string().contains("make room"), "{error}");
    assert_eq!(files::list(&directory.path().join(".incoming")).unwrap(), Vec::<PathBuf>::new());
}

#[test]
fn a_damaged_image_that_is_put_aside_gives_what_is_right_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::at(directory.path());
    let bytes = content(0);
    let id = put(&store, &bytes, "debian");
    put_aside(&store, &id).unwrap();
    assert!(!store.has(&id));
    assert!(look(&store, &manifest(&bytes)).iter().all(|found| *found == Found::Kept));
}

#[test]
fn a_description_that_makes_no_sense_is_none() {
    let sound = serde_json::to_string(&Description::new("debian", 7)).unwrap();
    assert!(Description::parse(&sound).is_some());
    for junk in ["", "{}", &sound.replace("debian", ""), &sound.replace("debian", "a\\nb"), &sound.replace("/1", "/2")]
    {
        assert_eq!(Description::parse(junk), None, "{junk}");
    }
}
