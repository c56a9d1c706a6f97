//! Where values come from: options, environment, a TOML file; each remembers its place, so that a fault can name it.

use super::key::{KEYS, Key, Takes, find, nearest};
use base::error::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Largest configuration file: a thousand times a long one.
const FILE_MAX: u64 = 1 << 20;

/// What was said for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(String),
    Switch(bool),
    List(Vec<String>),
}

/// Where a value was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An option of the command line, without its dashes.
    Option(&'static str),
    /// A variable of the environment.
    Variable(String),
    /// A line of a file, from 1.
    Line(PathBuf, usize),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Option(name) => write!(f, "--{name}"),
            Origin::Variable(name) => f.write_str(name),
            Origin::Line(file, line) => write!(f, "{}:{line}", file.display()),
        }
    }
}

impl Origin {
    /// A path as it is meant here: in a file relative to where the file is, else to where the command runs.
    pub fn path(&self, path: &str) -> PathBuf {
        match self {
            Origin::Line(file, _) => file.parent().unwrap_or(Path::new("")).join(path),
            Origin::Option(_) | Origin::Variable(_) => PathBuf::from(path),
        }
    }
}

/// Something that is wrong with what was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where; none if it is about something that nobody said.
    pub origin: Option<Origin>,
    /// Which key, as it was written; empty if it is about the file.
    pub key: String,
    /// What is wrong, and after a semicolon what to do.
    pub text: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(f, "{origin}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.text)
    }
}

/// The merged settings: each key with the value of its highest-priority source.
#[derive(Clone, Debug, Default)]
pub struct Said(BTreeMap<&'static str, (Value, Origin)>);

/// Two ways to say the same thing: who says one of them has said both.
const SECRETS: [&str; 2] = ["secret", "secret_file"];

impl Said {
    /// Says something. The last one counts.
    pub fn say(&mut self, key: &'static str, value: Value, origin: Origin) {
        assert!(find(key).is_some(), "{key} is no key");
        self.0.insert(key, (value, origin));
    }

    /// The same, if there is a value.
    pub fn say_text(&mut self, key: &'static str, text: Option<String>, origin: Origin) {
        if let Some(text) = text {
            self.say(key, Value::Text(text), origin);
        }
    }

    /// What was said for a key.
    pub fn get(&self, key: &str) -> Option<&(Value, Origin)> {
        self.0.get(key)
    }

    /// All of it, and of what `weaker` says what nobody here said.
    #[must_use]
    pub fn over(mut self, weaker: Said) -> Said {
        let secret = SECRETS.iter().any(|key| self.0.contains_key(key));
        for (key, said) in weaker.0 {
            if !(secret && SECRETS.contains(&key)) {
                self.0.entry(key).or_insert(said);
            }
        }
        self
    }
}

/// What the environment says. `variable` gives the text of a variable that is set.
pub fn environment(variable: impl Fn(&str) -> Option<String>) -> (Said, Vec<Fault>) {
    let (mut said, mut faults) = (Said::default(), Vec::new());
    for key in KEYS {
        let name = key.variable();
        let Some(text) = variable(&name) else { continue };
        let origin = Origin::Variable(name);
        match (key.takes, text.as_str()) {
            (Takes::Text, _) => said.say(key.name, Value::Text(text), origin),
            (Takes::List, _) => {
                let list = text.split(',').map(|word| word.trim().to_string()).filter(|word| !word.is_empty());
                said.say(key.name, Value::List(list.collect()), origin);
            }
            (Takes::Switch, "true") => said.say(key.name, Value::Switch(true), origin),
            (Takes::Switch, "false") => said.say(key.name, Value::Switch(false), origin),
            (Takes::Switch, _) => {
                let text = format!("'{text}' is neither true nor false");
                faults.push(Fault { origin: Some(origin), key: String::new(), text });
            }
        }
    }
    (said, faults)
}

/// What a TOML file says. An error: the file cannot be read; everything else is a fault.
pub fn read(file: &Path) -> Result<(Said, Vec<Fault>)> {
    if os::file::metadata(file)?.len() > FILE_MAX {
        let text = format!("{} has more than {FILE_MAX} bytes; it is no configuration file", file.display());
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    Ok(parse(file, &os::file::read_text(file)?))
}

/// What the text of a file says.
pub fn parse(file: &Path, text: &str) -> (Said, Vec<Fault>) {
    let line = |at: usize| 1 + text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count();
    let origin = |at: usize| Origin::Line(file.to_path_buf(), line(at));
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut faults: Vec<Fault> = errors
        .iter()
        .map(|error| Fault {
            origin: error.span().map(|span| origin(span.start)),
            key: String::new(),
            text: format!("this is no TOML: {}", error.message().replace('\n', ", ")),
        })
        .collect();
    let mut said = Said::default();
    let mut leaves = Vec::new();
    collect(table.get_ref(), "", &mut leaves);
    leaves.sort_by_key(|(_, at, _)| *at);
    for (name, at, value) in leaves {
        let origin = origin(at);
        match find(&name).map(|key| (key, understood(key, value))) {
            Some((key, Ok(value))) => said.say(key.name, value, origin),
            Some((_, Err(text))) => faults.push(Fault { origin: Some(origin), key: name, text }),
            None => faults.push(Fault { origin: Some(origin), text: unknown(&name), key: name }),
        }
    }
    faults.sort_by_key(|fault| match &fault.origin {
        Some(Origin::Line(_, line)) => *line,
        _ => 0,
    });
    (said, faults)
}

fn unknown(name: &str) -> String {
    match nearest(name) {
        Some(near) => format!("there is no such key; did you mean `{near}`?"),
        None => "there is no such key, and none is like it; docs/operate/configuration.md lists all".to_string(),
    }
}

/// The values of a table and of those in it, each with its whole name and where its name begins.
fn collect<'t>(table: &'t DeTable<'t>, above: &str, leaves: &mut Vec<(String, usize, &'t Spanned<DeValue<'t>>)>) {
    for (name, value) in table {
        let whole = if above.is_empty() { name.get_ref().to_string() } else { format!("{above}.{}", name.get_ref()) };
        match value.get_ref() {
            DeValue::Table(inner) if !inner.is_empty() => collect(inner, &whole, leaves),
            _ => leaves.push((whole, name.span().start, value)),
        }
    }
}

/// The value as the key takes it, or what is wrong with it.
fn understood(key: &Key, value: &Spanned<DeValue<'_>>) -> std::result::Result<Value, String> {
    let value = value.get_ref();
    match (key.takes, value) {
        (Takes::Text, DeValue::String(text)) => Ok(Value::Text(text.to_string())),
        (Takes::Switch, DeValue::Boolean(on)) => Ok(Value::Switch(*on)),
        (Takes::List, DeValue::Array(list)) if list.iter().all(|word| word.get_ref().is_str()) => {
            let words = list.iter().filter_map(|word| word.get_ref().as_str());
            Ok(Value::List(words.map(str::to_string).collect()))
        }
        (takes, value) => {
            let wanted = match takes {
                Takes::Text => "text in quotes",
                Takes::Switch => "true or false",
                Takes::List => "texts in brackets, like [\"a\", \"b\"]",
            };
            Err(format!("this is {}; write {wanted}", shown(value)))
        }
    }
}

fn shown(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a time",
        DeValue::Array(_) => "a list of something else than text",
        DeValue::Table(_) => "a table",
    }
}

#[cfg(test)]
mod tests {
    use super::{Fault, Origin, Said, Value, environment, parse};
    use sim::random::SimRandom;
    use std::path::{Path, PathBuf};

    /// Whatever is in a file, it is settings and faults, each with a line that there is.
    #[test]
    fn fuzz_settings() {
        let whole = b"listen = \"a:1\"\n# words\ndata = [\"/a:ssd:1G\", '/b']\n[tls]\nx = { y = 1979-05-27, z = [1.5, true] }\n";
        for seed in sim::fuzz::seeds(2_000) {
            let (random, mut bytes) = (SimRandom::new(seed), whole.to_vec());
            for _ in 0..4 {
                sim::fuzz::damage(&random, &mut bytes);
                let text = String::from_utf8_lossy(&bytes);
                let lines = 1 + text.matches('\n').count();
                for fault in parse(Path::new("s.toml"), &text).1 {
                    let known = matches!(&fault.origin, Some(Origin::Line(_, line)) if (1..=lines).contains(line));
                    assert!(known, "seed {seed}: {fault} of {text:?}");
                }
            }
        }
    }

    fn faults(text: &str) -> Vec<String> {
        parse(Path::new("c/s.toml"), text).1.iter().map(Fault::to_string).collect()
    }

    /// Each fault of a file is named with its line, whatever stands before it, and a slip with the key that was meant.
    #[test]
    fn every_fault_has_its_line() {
        let text =
            "listn = \"a:1\"\n\n# words\nname = 5\ndata = \"a\"\nhdfs_trust_any_user_name = \"yes\"\n[sitee]\nx = 1\n";
        let said = faults(text);
        assert_eq!(said.len(), 5, "{said:?}");
        for (said, expected) in said.iter().zip([
            "c/s.toml:1: listn: there is no such key; did you mean `listen`?",
            "c/s.toml:4: name: this is a number; write text in quotes",
            "c/s.toml:5: data: this is text; write texts in brackets",
            "c/s.toml:6: hdfs_trust_any_user_name: this is text; write true or false",
            "c/s.toml:8: sitee.x: there is no such key",
        ]) {
            assert!(said.starts_with(expected), "{said}");
        }
        let broken = faults("name = \"a\"\nname = \"b\"\nrack = \nsite = \"c\"\nlistn = 1\n");
        assert!(broken.iter().any(|fault| fault.starts_with("c/s.toml:2: this is no TOML")), "{broken:?}");
        assert!(broken.iter().any(|fault| fault.starts_with("c/s.toml:3: this is no TOML")), "{broken:?}");
        assert!(broken.iter().any(|fault| fault.contains("did you mean `listen`")), "{broken:?}");
        assert!(faults("a = [[[[[[[[[[[[[[[[").iter().any(|fault| fault.contains("no TOML")));
    }

    /// The stronger voice counts, key by key; a secret said there silences both ways to say one here.
    #[test]
    fn options_beat_environment_beats_file() {
        let file = "name = \"f\"\nsite = \"f\"\nrack = \"f\"\nsecret_file = \"f\"\ndata = [\"f\"]\n";
        let (in_file, none) = parse(Path::new("c/s.toml"), file);
        assert_eq!(none, []);
        let (in_environment, none) = environment(|name| match name {
            "STORMWELL_NAME" | "STORMWELL_SITE" | "STORMWELL_SECRET" => Some("e".to_string()),
            "STORMWELL_DATA" => Some("a:ssd:1G, b".to_string()),
            _ => None,
        });
        assert_eq!(none, []);
        let mut options = Said::default();
        options.say_text("name", Some("o".to_string()), Origin::Option("name"));
        options.say_text("log", None, Origin::Option("log"));
        let all = options.over(in_environment).over(in_file);
        let text = |key| match all.get(key) {
            Some((Value::Text(text), origin)) => format!("{text} {origin}"),
            other => format!("{other:?}"),
        };
        assert_eq!(text("name"), "o --name");
        assert_eq!(text("site"), "e STORMWELL_SITE");
        assert_eq!(text("rack"), "f c/s.toml:3");
        assert_eq!(text("secret"), "e STORMWELL_SECRET");
        assert_eq!(all.get("secret_file"), None);
        assert_eq!(all.get("log"), None);
        let list = Value::List(vec!["a:ssd:1G".to_string(), "b".to_string()]);
        assert_eq!(all.get("data").map(|said| &said.0), Some(&list));
        let line = Origin::Line(PathBuf::from("c/s.toml"), 4);
        assert_eq!(line.path("k"), Path::new("c/k"));
        assert_eq!(line.path("/k"), Path::new("/k"));
        assert_eq!(Origin::Option("secret-file").path("k"), Path::new("k"));
        let (_, wrong) = environment(|name| (name == "STORMWELL_HDFS_TRUST_ANY_USER_NAME").then(|| "yes".to_string()));
        assert_eq!(wrong.len(), 1);
    }
}
