//! Files for commands and for the metadata tree.

use crate::Scratch;
use base::disk::BlockFile;
use base::error::ErrorKind;
use os::file::BlockingFile;

/// Errors name the path and keep the kind; `replace` leaves the new bytes and nothing else.
#[test]
fn errors_name_the_path() {
    let scratch = Scratch::new();
    let path = scratch.0.join("settings");
    let error = os::file::open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.text().contains("settings"), "{error}");
    os::file::replace(&path, b"one").unwrap();
    os::file::replace(&path, b"two").unwrap();
    assert_eq!(os::file::read(&path).unwrap(), b"two");
    assert_eq!(os::file::read_directory(&scratch.0).unwrap(), std::slice::from_ref(&path));
    assert_eq!(os::file::create_new(&path).unwrap_err().kind(), ErrorKind::Exists);
}

/// A name that something has, whatever it is, is not taken from it; one that nothing has is.
#[test]
fn new_names() {
    let scratch = Scratch::new();
    let [from, taken, directory, free] = ["from", "taken", "directory", "free"].map(|name| scratch.0.join(name));
    os::file::replace(&from, b"new").expect("written");
    os::file::replace(&taken, b"old").expect("written");
    os::file::create_directories(&directory).expect("made");
    for to in [&taken, &directory] {
        let error = os::file::rename_new(&from, to).expect_err("it is taken");
        assert_eq!(error.kind(), ErrorKind::Exists);
        assert!(error.text().contains("from"), "{error}");
    }
    assert_eq!(os::file::read(&taken).expect("as it was"), b"old");
    os::file::rename_new(&from, &free).expect("renamed");
    assert_eq!(os::file::read(&free).expect("there"), b"new");
    assert!(!os::file::exists(&from).expect("looked"));
}

/// What a store makes for itself nobody else can look into; what is there already, and what is above, is as it is.
#[test]
fn own_directories() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
    let (above, own) = (scratch.0.join("above"), scratch.0.join("above/own"));
    os::file::create_own_directory(&own).expect("made");
    assert_eq!((mode(&own), mode(&above) & 0o700), (0o700, 0o700));
    assert_eq!(mode(&above), mode(&scratch.0), "as usual");
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o750)).expect("set");
    os::file::create_own_directory(&own).expect("there");
    assert_eq!(mode(&own), 0o750);
}

/// The blocking file reads what was written, grows with zeros, and refuses to read beyond its end.
#[test]
fn blocking_file() {
    let scratch = Scratch::new();
    let file = BlockingFile::open(&scratch.0.join("tree")).unwrap();
    assert_eq!(file.length().unwrap(), 0);
    file.write(10, b"abc").unwrap();
    file.set_length(20).unwrap();
    file.sync().unwrap();
    drop(file);
    let file = BlockingFile::open(&scratch.0.join("tree")).unwrap();
    let mut out = [1; 20];
    file.read(0, &mut out).unwrap();
    assert_eq!(&out[9..14], b"\0abc\0");
    let error = file.read(1, &mut out).unwrap_err();
    assert!(error.to_string().contains("tree"), "{error}");
}

/// A file that is only looked at takes every change in memory: reads see them, the file never does.
#[test]
fn unchanged_file() {
    let scratch = Scratch::new();
    let path = scratch.0.join("tree");
    let mut model: Vec<u8> = (0..20_000_u32).map(|number| number as u8).collect();
    std::fs::write(&path, &model).unwrap();
    let file = os::file::UnchangedFile::open(&path).unwrap();
    let check = |model: &[u8]| {
        assert_eq!(file.length().unwrap(), model.len() as u64);
        let mut all = vec![7; model.len()];
        file.read(0, &mut all).unwrap();
        assert!(all == model);
        assert!(file.read(1, &mut all).is_err());
    };
    check(&model);
    file.write(4000, &[255; 5000]).unwrap();
    model[4000..9000].fill(255);
    check(&model);
    file.write(19_990, &[9; 20]).unwrap();
    model.resize(20_010, 0);
    model[19_990..].fill(9);
    check(&model);
    // Cut inside a changed page and inside an unchanged one, and grown again: what was cut away is zeros.
    for (cut, grown) in [(4500, 10_000), (2000, 12_000)] {
        file.set_length(cut).unwrap();
        model.truncate(cut as usize);
        check(&model);
        file.set_length(grown).unwrap();
        model.resize(grown as usize, 0);
        check(&model);
    }
    file.sync().unwrap();
    assert!(std::fs::read(&path).unwrap() == (0..20_000_u32).map(|number| number as u8).collect::<Vec<u8>>());
}
