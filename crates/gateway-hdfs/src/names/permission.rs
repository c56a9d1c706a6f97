//! Who is who in HDFS's words. What somebody may do the store judges.

use crate::caller::Caller;
use crate::refusal::{ACCESS_CONTROL, Refusal};
use base::permission::SUPERUSERS_GROUP;
use client::Attributes;

/// The refusal of what only a superuser may do; HDFS's name of the operation.
pub(crate) fn superuser_only(caller: &Caller, operation: &str) -> Refusal {
    let text =
        format!("Access denied for user {}. Superuser privilege is required for operation {operation}", caller.user);
    Refusal::new(ACCESS_CONTROL, text)
}

/// Who owns it: the superuser what nobody claimed.
pub(crate) fn owner_of<'a>(superuser: &'a str, attributes: &'a Attributes) -> &'a str {
    if attributes.owner.is_empty() { superuser } else { &attributes.owner }
}

/// Which group it belongs to.
pub(crate) fn group_of(attributes: &Attributes) -> &str {
    if attributes.group.is_empty() { SUPERUSERS_GROUP } else { &attributes.group }
}
