//! What a plugin is called: two digits that say when its turn is, and a name, as in `10-logger`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest name of a plugin, in bytes, its digits and the hyphen not counted.
pub const PLUGIN_NAME_BYTES_MAX: usize = 64;

/// See the module. Ordered as plugins are called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PluginName {
    index: String,
    name: String,
}

impl PluginName {
    /// From its parts. The error says what would be right.
    pub fn new(index: &str, name: &str) -> Result<Self, String> {
        if index.len() != 2 || !index.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(format!("the index {index:?} of plugin {name:?} is not valid; expected two digits"));
        }
        let usual = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '+' | '-');
        if name.is_empty() || name.len() > PLUGIN_NAME_BYTES_MAX || !name.chars().all(usual) {
            return Err(format!(
                "the plugin name {name:?} is not valid; expected 1 to {PLUGIN_NAME_BYTES_MAX} letters, digits, '.', '_', '+' and '-'"
            ));
        }
        Ok(Self { index: index.to_owned(), name: name.to_owned() })
    }

    /// The two digits.
    pub fn index(&self) -> &str {
        &self.index
    }

    /// The name without them.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for PluginName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.index, self.name)
    }
}

impl FromStr for PluginName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('-') {
            Some((index, name)) => Self::new(index, name),
            None => Err(format!("the plugin {text:?} is not valid; expected two digits, '-' and a name")),
        }
    }
}

impl TryFrom<String> for PluginName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<PluginName> for String {
    fn from(name: PluginName) -> Self {
        name.to_string()
    }
}
