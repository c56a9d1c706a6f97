//! A file system in a file, whose image is copied at one instant while a server works on it. The file lies on an XFS of our
//! own, in another file, because XFS copies by sharing blocks under a lock: no write is half before and half behind the copy.

use super::tool;
use base::error::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Size of the file system that holds the image and its copy, and of the image. Neither is filled.
const HOST_BYTES: u64 = 2 << 30;
const IMAGE_BYTES: u64 = 640 << 20;

/// File systems that are tried, and how they are made.
pub const FILE_SYSTEMS: [(&str, &[&str]); 2] = [("ext4", &["mkfs.ext4", "-q", "-F"]), ("xfs", &["mkfs.xfs", "-q"])];

/// A ring of a process that was killed lets go of its files a moment after the process is gone: it is tried for ten seconds.
const UNMOUNT: &str =
    "n=0; until umount \"$0\" 2>/dev/null; do n=$((n+1)); [ $n -gt 200 ] && exec umount \"$0\"; sleep 0.05; done";

/// Why images cannot be tried here, if they cannot.
pub fn obstacle() -> Option<String> {
    tool::obstacle("loop devices and mounts", &["mkfs.ext4", "mkfs.xfs", "losetup", "mount", "umount"])
}

/// Both file systems, mounted; both go when this goes.
pub struct Image {
    directory: PathBuf,
    host: Option<Mounted>,
    data: Option<Mounted>,
}

/// A file that is a loop device that is mounted, until this goes.
pub struct Mounted {
    device: String,
    at: Option<PathBuf>,
}

impl Image {
    /// Makes both in this directory.
    pub fn new(directory: &Path, make: &[&str]) -> Result<Image> {
        let mut image = Image { directory: directory.to_path_buf(), host: None, data: None };
        let host = directory.join("host.img");
        make_file(&host, HOST_BYTES)?;
        tool::run(&["mkfs.xfs", "-q", "-m", "reflink=1"], &[&host])?;
        image.host = Some(Mounted::new(&host, &directory.join("host"))?);
        make_file(&image.file(), IMAGE_BYTES)?;
        tool::run(make, &[&image.file()])?;
        image.mount()?;
        Ok(image)
    }

    fn file(&self) -> PathBuf {
        self.directory.join("host/data.img")
    }

    fn copy(&self) -> PathBuf {
        self.directory.join("host/copy.img")
    }

    /// The copy command, which may run while the server works.
    pub fn copy_command(&self) -> Command {
        let mut command = Command::new("cp");
        command.arg("--reflink=always").arg(self.file()).arg(self.copy());
        command
    }

    fn mount(&mut self) -> Result<()> {
        self.data = Some(Mounted::new(&self.file(), &self.directory.join("data"))?);
        Ok(())
    }

    /// Puts the copy in the place of the image, as after a power cut at the instant of the copy. Nobody uses it meanwhile.
    pub fn fall_back(&mut self) -> Result<()> {
        self.data = None;
        os::file::rename(&self.copy(), &self.file())?;
        self.mount()
    }

    /// Where the image is mounted.
    pub fn mounted_at(directory: &Path) -> PathBuf {
        directory.join("data")
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // The inner one first.
        self.data = None;
        self.host = None;
    }
}

impl Mounted {
    /// Mounts the file system in this file there.
    pub fn new(file: &Path, at: &Path) -> Result<Mounted> {
        os::file::create_directories(at)?;
        let device = tool::run(&["losetup", "--find", "--show"], &[file])?.trim().to_string();
        let mut mounted = Mounted { device, at: None };
        tool::run(&["mount", &mounted.device], &[at])?;
        mounted.at = Some(at.to_path_buf());
        Ok(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(at) = &self.at
            && let Err(error) = tool::run(&["sh", "-c", UNMOUNT], &[at])
        {
            // Detached from its name now, and for good when the last who uses it is gone.
            eprintln!("lab: {error}");
            let _ = tool::run(&["umount", "--lazy"], &[at]);
        }
        if let Err(error) = tool::run(&["losetup", "--detach", &self.device], &[]) {
            eprintln!("lab: {error}");
        }
    }
}

/// Makes a file of so many bytes that takes no room yet.
pub fn make_file(path: &Path, length: u64) -> Result<()> {
    Ok(os::file::create(path)?.set_len(length)?)
}
