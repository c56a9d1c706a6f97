//! The clients themselves: jars by Maven, our drivers by javac, packages by pip; kept in the target directory.
//! What continuous integration runs is one kit; Hadoop's jobs and HBase are others, so that it does not wait for them.

use crate::stage::Run;
use crate::{tool, tree};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Downloads are tried so many times.
const TRIES: usize = 3;

/// A JVM that starts fast and stays small.
pub const SMALL_JVM: [&str; 3] = ["-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

/// A JVM as a server has it that is measured.
pub const WARM_JVM: &[&str] = &["-Xmx1g"];

/// Everything that is downloaded or compiled.
pub struct Kit {
    place: PathBuf,
    class_path: String,
}

impl Kit {
    /// Makes what is missing or older than its description. An error says what cannot be had.
    pub fn set_up(root: &Path, limit: Option<Duration>) -> Result<Kit, String> {
        for (program, argument, package) in [
            ("java", "-version", "a JDK of version 17"),
            ("javac", "-version", "a JDK of version 17"),
            ("mvn", "-version", "Maven"),
            ("python3", "--version", "Python 3.11 with venv"),
        ] {
            if !tool::answers(program, &[argument]) {
                return Err(format!("{program} is missing; install {package}"));
            }
        }
        let place = tree::release_directory(root).with_file_name("foreign");
        fs::create_dir_all(&place).map_err(|error| format!("{} cannot be made: {error}", place.display()))?;
        let class_path = java(root, "java", &place, &place, limit)?;
        packages(root, "requirements.txt", &place, &place.join("python"), limit)?;
        Ok(Kit { place, class_path })
    }

    /// The jars and drivers of another folder of `clients`.
    pub fn other(&self, root: &Path, source: &str) -> Result<Kit, String> {
        let place = self.place.join(source);
        fs::create_dir_all(&place).map_err(|error| format!("{} cannot be made: {error}", place.display()))?;
        let class_path = java(root, source, &self.place, &place, None)?;
        Ok(Kit { place, class_path })
    }

    /// An interpreter with Spark, which is some 320 MB.
    pub fn spark(&self, root: &Path) -> Result<PathBuf, String> {
        let venv = self.place.join("spark");
        packages(root, "spark.txt", &self.place, &venv, None)?;
        Ok(venv.join("bin/python"))
    }

    /// A Java program for tests, with the jars. What it logs goes to `NAME.log` in the directory.
    pub fn java(&self, name: &str, class: &str, directory: &Path) -> Run {
        self.java_as(&SMALL_JVM, name, class, directory)
    }

    /// The same with these options of the JVM.
    pub fn java_as(&self, options: &[&str], name: &str, class: &str, directory: &Path) -> Run {
        let mut run = Run::of("java");
        run.words.extend(options.iter().map(|option| (*option).to_owned()));
        run.words.push(format!("-Dstormwell.log={}", directory.join(format!("{name}.log")).display()));
        run.words.extend(["-cp".to_owned(), self.class_path.clone(), class.to_owned()]);
        run
    }

    /// The same with a directory of configuration files before everything else. The log lies beside that.
    pub fn configured(&self, options: &[&str], configuration: &Path, name: &str, class: &str) -> Run {
        let directory = configuration.parent().unwrap_or(configuration);
        let mut run = self.java_as(options, name, class, directory);
        for word in run.words.iter_mut().filter(|word| **word == self.class_path) {
            *word = format!("{}:{}", configuration.display(), self.class_path);
        }
        run
    }

    /// The interpreter that has the packages.
    pub fn python(&self) -> PathBuf {
        self.place.join("python/bin/python")
    }
}

/// Calls `make` unless the note says that it was made from these files as they are.
fn unless_made(note: &Path, files: &[PathBuf], make: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let mut text = String::new();
    for file in files {
        text += &file.display().to_string();
        text += &fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    if fs::read_to_string(note).is_ok_and(|made| made == text) {
        return Ok(());
    }
    let _ = fs::remove_file(note);
    make()?;
    fs::write(note, text).map_err(|error| format!("{}: {error}", note.display()))
}

/// The jars that `clients/SOURCE/pom.xml` names and the programs beside it; `place` is theirs, `all` has what every kit
/// downloads. Answers the class path.
fn java(root: &Path, source: &str, all: &Path, place: &Path, limit: Option<Duration>) -> Result<String, String> {
    let sources = root.join("clients").join(source);
    let pom = sources.join("pom.xml");
    unless_made(&place.join("classpath.of"), std::slice::from_ref(&pom), || jars(&sources, all, place, limit))?;
    let jars = fs::read_to_string(place.join("classpath")).map_err(|error| format!("the class path: {error}"))?;
    let ours = java_files(&sources.join("src"))?;
    let described: Vec<PathBuf> = ours.iter().cloned().chain([pom]).collect();
    unless_made(&place.join("classes.of"), &described, || compile(&ours, place, &jars))?;
    let settings = root.join("clients/java/conf").display().to_string();
    Ok(format!("{settings}:{}:{}", place.join("classes").display(), jars.trim()))
}

/// Downloads the jars and writes their paths into the file `classpath`.
fn jars(sources: &Path, all: &Path, place: &Path, limit: Option<Duration>) -> Result<(), String> {
    let mut run = Run::of("mvn -q -B -Dstyle.color=never dependency:build-classpath -Dmdep.includeScope=runtime");
    run.words.push(format!("-Dmaven.repo.local={}", all.join("maven").display()));
    run.words.push(format!("-Dmdep.outputFile={}", place.join("classpath").display()));
    tried("Maven cannot fetch the jars", || run.execute(sources, limit))
}

fn compile(files: &[PathBuf], place: &Path, jars: &str) -> Result<(), String> {
    let classes = place.join("classes");
    let _ = fs::remove_dir_all(&classes);
    let mut run = Run::of("javac -Xlint:-options -d");
    run.words.extend([classes.display().to_string(), "-cp".to_owned(), jars.trim().to_owned()]);
    run.words.extend(files.iter().map(|file| file.display().to_string()));
    run.execute(place, None)
}

/// An interpreter at `venv` with the packages that a list in `clients/python` names.
fn packages(root: &Path, list: &str, place: &Path, venv: &Path, limit: Option<Duration>) -> Result<(), String> {
    let list = root.join("clients/python").join(list);
    unless_made(&venv.with_extension("of"), std::slice::from_ref(&list), || {
        let _ = fs::remove_dir_all(venv);
        let mut make = Run::of("python3 -m venv");
        make.words.push(venv.display().to_string());
        make.execute(place, limit)?;
        let mut run = Run::of("");
        run.words.push(venv.join("bin/pip").display().to_string());
        run.words.extend(["install", "--quiet", "--disable-pip-version-check", "-r"].map(str::to_owned));
        run.words.push(list.display().to_string());
        tried("pip cannot fetch the packages", || run.execute(place, limit))
    })
}

fn tried(what: &str, mut action: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    let mut result = Ok(());
    for _ in 0..TRIES {
        result = action();
        if result.is_ok() {
            break;
        }
    }
    result.map_err(|text| format!("{what}: {text}"))
}

/// All Java files below, in the order of their names.
fn java_files(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", directory.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        if path.is_dir() {
            found.extend(java_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "java") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
