//! What a server says while it runs: one line for each thing, with time, level, area and fields, as text or as JSON.

use crate::world::World;
use base::env::Clock;
use base::error::{Error, ErrorKind, Result};
use base::unit::show_time;
use serde_json::{Map, Value};
use std::fmt::{self, Display, Write};
use std::sync::Arc;

/// How lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// `2026-11-21T01:55:06.042Z warn connection what happened key=value`.
    #[default]
    Text,
    /// One JSON object a line, with the same names.
    Json,
}

impl Form {
    /// The form with this name: `text` or `json`.
    pub fn from_name(name: &str) -> Result<Form> {
        match name {
            "text" => Ok(Form::Text),
            "json" => Ok(Form::Json),
            _ => Err(Error::new(ErrorKind::Invalid, format!("'{name}' is no form of the log; choose text or json"))),
        }
    }
}

/// How much somebody should care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// It is as it should be.
    Info,
    /// Somebody should look when there is time.
    Warn,
    /// Somebody should look now.
    Error,
}

impl Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        })
    }
}

/// Writes lines where the world puts them: to stderr. Clones write to the same place.
#[derive(Clone)]
pub struct Log {
    clock: Arc<dyn Clock>,
    form: Form,
    world: Arc<dyn World>,
}

impl Log {
    /// A log whose lines carry this clock's time.
    pub fn new(clock: Arc<dyn Clock>, form: Form, world: Arc<dyn World>) -> Log {
        Log { clock, form, world }
    }

    /// Says something about an area: `device`, `connection`, `housekeeping`, ...
    pub fn say(&self, level: Level, area: &str, text: &str, fields: &[(&str, &dyn Display)]) {
        let time = show_time(self.clock.wall());
        self.world.say(&line(self.form, &time, level, area, text, fields));
    }
}

fn line(form: Form, time: &str, level: Level, area: &str, text: &str, fields: &[(&str, &dyn Display)]) -> String {
    match form {
        Form::Text => {
            let mut line = format!("{time} {level} {area} {text}");
            for (name, value) in fields {
                let value = value.to_string();
                let plain = !value.is_empty() && !value.contains(|c: char| c.is_whitespace() || "\"=".contains(c));
                // Writing to a String cannot fail.
                let _ = if plain { write!(line, " {name}={value}") } else { write!(line, " {name}={value:?}") };
            }
            // One thing, one line, whatever a name holds.
            line.replace(['\n', '\r'], " ")
        }
        Form::Json => {
            let mut object = Map::new();
            object.insert("time".to_string(), Value::from(time));
            object.insert("level".to_string(), Value::from(level.to_string()));
            object.insert("area".to_string(), Value::from(area));
            object.insert("text".to_string(), Value::from(text));
            for (name, value) in fields {
                object.insert((*name).to_string(), Value::from(value.to_string()));
            }
            Value::Object(object).to_string()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Form, Level, line};

    /// One thing is one line in either form, and fields can be told apart whatever is in them.
    #[test]
    fn lines() {
        let fields: [(&str, &dyn std::fmt::Display); 2] = [("place", &"/a b"), ("bytes", &7)];
        assert_eq!(
            line(Form::Text, "T", Level::Warn, "device", "is\nfull", &fields),
            "T warn device is full place=\"/a b\" bytes=7"
        );
        let json = line(Form::Json, "T", Level::Info, "device", "is\nfull", &fields);
        assert!(!json.contains('\n'));
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (&value["text"], &value["place"], &value["level"]),
            (&"is\nfull".into(), &"/a b".into(), &"info".into())
        );
    }
}
