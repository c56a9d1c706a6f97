//! A file or directory: its record on disk, what is answered of it, and how its attributes are changed. Whoever adds an attribute to
//! `base::attributes` adds it here.

use crate::attributes::{check_acl, check_mode, check_room, check_user_name};
use crate::format::{AttributesRecord, FIRST_GENERATION, PolicyRecord};
use base::acl::{Acl, AclEntry};
use base::attributes::{Attributes, NewAttributes};
use base::error::Result;
use base::id::InodeId;
use base::limit::REPLICAS_MAX;
use prost::Message;

/// Under `Key::Inode`.
#[derive(Clone, PartialEq, Message)]
pub struct InodeRecord {
    /// A directory, not a file.
    #[prost(bool, tag = "1")]
    pub directory: bool,
    /// Bytes of a file.
    #[prost(uint64, tag = "2")]
    pub length: u64,
    /// Milliseconds since 1970.
    #[prost(uint64, tag = "3")]
    pub modified: u64,
    /// Milliseconds since 1970.
    #[prost(uint64, tag = "4")]
    pub created: u64,
    /// Permission bits.
    #[prost(uint32, tag = "5")]
    pub mode: u32,
    /// Who owns it, as gateways say.
    #[prost(string, optional, tag = "6")]
    pub owner: Option<String>,
    /// Which group of people owns it.
    #[prost(string, optional, tag = "7")]
    pub group: Option<String>,
    /// Rises with every writer.
    #[prost(uint64, tag = "8")]
    pub generation: u64,
    /// The directory that it is in.
    #[prost(uint64, tag = "9")]
    pub parent: u64,
    /// Its name there.
    #[prost(string, tag = "10")]
    pub name: String,
    /// Its own wishes.
    #[prost(message, optional, tag = "11")]
    pub policy: Option<PolicyRecord>,
    /// Who writes it.
    #[prost(message, optional, tag = "12")]
    pub writer: Option<WriterRecord>,
    /// Milliseconds since 1970; zero: nobody said, so as `modified`.
    #[prost(uint64, tag = "13")]
    pub accessed: u64,
    /// It has a record under `Key::Xattrs`.
    #[prost(bool, tag = "14")]
    pub xattrs: bool,
    /// What the HDFS gateway keeps with it, opaque to everybody else; empty: nothing.
    #[prost(bytes = "vec", tag = "15")]
    pub note: Vec<u8>,
    /// What other gateways keep with it, one for each. No gateway of this program has any; they are kept as they are.
    #[prost(message, repeated, tag = "22")]
    pub notes: Vec<GatewayNoteRecord>,
    /// It has a record under `Key::Quota`.
    #[prost(bool, tag = "20")]
    pub quota: bool,
    /// How often its bytes count against quotas, as its wish was when that was last followed (`placement::Wish::counted`); zero: once.
    #[prost(uint32, tag = "21")]
    pub copies: u32,
    /// Rises when its rights, its note or its extended attributes change.
    #[prost(uint64, tag = "24")]
    pub version: u64,
    /// Groups without bytes that were taken from its writers, as far as they are kept for the time that those writers' sessions last. A
    /// program that does not know them keeps them for as long.
    #[prost(uint64, repeated, tag = "26")]
    pub fenced: Vec<u64>,
    /// For whom it was closed while he had it open; none: for nobody.
    #[prost(message, optional, tag = "27")]
    pub kept: Option<KeptRecord>,
    /// Its access control list; none: the one in `note`, where the HDFS gateway kept it up to version 2.
    #[prost(message, optional, tag = "28")]
    pub acl: Option<Acl>,
    /// Names in a directory; none: of a file, or of a directory that an older program made. One that does not know the field drops it with the
    /// next change of the directory's names, so losing it does no harm: nobody counts the names then.
    #[prost(uint64, optional, tag = "29")]
    pub children: Option<u64>,
    /// How many copies whoever made the file asked for; zero: nobody did, or an older program noted it. One that does not know the field drops it, and
    /// the file follows its directory then.
    #[prost(uint32, tag = "30")]
    pub asked: u32,
}

/// A file that was closed although its holder in a gateway's protocol did not ask for that, because the gateway is gone or another one takes
/// the file over: its holder may go on with it.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct KeptRecord {
    /// The generation at which the file was closed; at any other one somebody has opened or changed it since.
    #[prost(uint64, tag = "1")]
    pub generation: u64,
    /// `WriterRecord::holder`.
    #[prost(string, tag = "2")]
    pub holder: String,
    /// `WriterRecord::block_base`.
    #[prost(uint64, tag = "3")]
    pub block_base: u64,
    /// `WriterRecord::block_number`.
    #[prost(uint32, tag = "4")]
    pub block_number: u32,
    /// `WriterRecord::began_length`, or zero of a file that its holder made.
    #[prost(uint64, tag = "5")]
    pub began_length: u64,
    /// `WriterRecord::began_generation`, or the first one of a file that its holder made.
    #[prost(uint64, tag = "6")]
    pub began_generation: u64,
}

/// What one gateway keeps with a file or directory.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct GatewayNoteRecord {
    /// Which gateway: 1 is HDFS's, whose note is in `InodeRecord::note`; others are given out as they come.
    #[prost(uint32, tag = "1")]
    pub gateway: u32,
    /// Opaque to everybody else.
    #[prost(bytes = "vec", tag = "2")]
    pub note: Vec<u8>,
}

/// What of a note of the HDFS gateway counts that is of version 2: the list. Its other fields are the gateway's alone.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct OldNoteRecord {
    /// In their order.
    #[prost(message, repeated, tag = "5")]
    pub acl: Vec<AclEntry>,
}

/// The write lease of a file and its open extent.
#[derive(Clone, PartialEq, Message)]
pub struct WriterRecord {
    /// Sixteen bytes; the session that writes.
    #[prost(bytes = "vec", tag = "1")]
    pub session: Vec<u8>,
    /// The group being appended to.
    #[prost(uint64, tag = "2")]
    pub group: u64,
    /// Where in the file the group's bytes begin.
    #[prost(uint64, tag = "3")]
    pub start: u64,
    /// Bytes of the group known to be synced.
    #[prost(uint64, tag = "4")]
    pub length: u64,
    /// The file was there before this writer.
    #[prost(bool, tag = "5")]
    pub appending: bool,
    /// Effective wishes when the writer began.
    #[prost(message, optional, tag = "6")]
    pub policy: Option<PolicyRecord>,
    /// The session ended; the group has to be sealed.
    #[prost(bool, tag = "7")]
    pub ended: bool,
    /// Length of the file up to which it counts against quotas while it is written, if that is more than it has.
    #[prost(uint64, tag = "20")]
    pub reserved: u64,
    /// Who holds the file in a gateway's protocol; empty: nobody said.
    #[prost(string, tag = "21")]
    pub holder: String,
    /// Where in the file the block begins that its holder writes, if not all its blocks do where blocks usually begin; zero: all do.
    #[prost(uint64, tag = "24")]
    pub block_base: u64,
    /// That block's number among those of this file.
    #[prost(uint32, tag = "25")]
    pub block_number: u32,
    /// Bytes that the file had when its holder opened it, which may have gone on with it through other gateways since. Not of a file that
    /// its holder made.
    #[prost(uint64, tag = "26")]
    pub began_length: u64,
    /// And the generation that it got then; zero: nobody knows.
    #[prost(uint64, tag = "27")]
    pub began_generation: u64,
    /// It was taken from its holder, too, who may not go on with it.
    #[prost(bool, tag = "28")]
    pub released: bool,
}

impl InodeRecord {
    /// A file without bytes, or a directory without names, of which nothing else is said.
    pub fn empty(directory: bool) -> InodeRecord {
        InodeRecord { directory, children: directory.then_some(0), ..InodeRecord::default() }
    }

    /// What is answered of it.
    pub fn attributes(mut self, inode: InodeId) -> Attributes {
        // A list of an older store is said once: with the rest of the note it is no longer than `limit::NOTE_MAX`.
        let (acl, note) = self.take_acl_and_note();
        let KeptRecord { holder, block_base, block_number, began_length, began_generation, .. } =
            self.writer.as_ref().map(kept).or_else(|| self.is_kept().cloned()).unwrap_or_default();
        Attributes {
            inode: inode.0,
            directory: self.directory,
            length: self.length,
            modified_ms: self.modified,
            created_ms: self.created,
            accessed_ms: if self.accessed == 0 { self.modified } else { self.accessed },
            mode: self.mode,
            acl,
            owner: self.owner.unwrap_or_default(),
            group: self.group.unwrap_or_default(),
            generation: self.generation,
            open: self.writer.is_some(),
            note,
            holder,
            version: self.version,
            block_base,
            // Neither is known without the other.
            block_number: if block_base == 0 { 0 } else { block_number },
            began_length: if began_generation == 0 { 0 } else { began_length },
            began_generation,
            children: self.children,
        }
    }

    /// Changes its attributes. Whether what decides who may do what with it has changed, or its note.
    pub fn change(&mut self, new: &NewAttributes) -> Result<bool> {
        let before = self.judged();
        if let Some(mode) = new.mode {
            check_mode(mode)?;
            self.mode = mode;
        }
        for (name, kept) in [(&new.owner, &mut self.owner), (&new.group, &mut self.group)] {
            if let Some(name) = name {
                check_user_name(name)?;
                *kept = Some(name.clone());
            }
        }
        if let Some(acl) = &new.acl {
            check_acl(&acl.entries)?;
            self.set_acl(&acl.entries);
        }
        if let Some(note) = &new.note {
            // The list that there was stays, also none: who may write sets the note, but only the owner sets the list.
            if self.acl.is_none() {
                let list = self.acl();
                self.set_acl(&list);
            }
            self.note.clone_from(note);
        }
        check_room(self)?;
        if let Some(copies) = new.copies {
            self.set_copies(copies);
        }
        self.modified = new.modified_ms.unwrap_or(self.modified);
        self.accessed = new.accessed_ms.unwrap_or(self.accessed);
        let judged = self.judged() != before;
        self.version = self.version.saturating_add(u64::from(judged));
        Ok(judged)
    }

    /// Somebody wishes for so many copies of this file; zero: for as many as its directory says. Of a directory it is only noted.
    fn set_copies(&mut self, copies: u32) {
        self.copies = copies;
        if self.directory {
            return;
        }
        let own = (copies > 0).then(|| copies.clamp(1, REPLICAS_MAX as u32));
        if let Some(own) = own {
            self.copies = own;
        } else {
            self.asked = 0;
        }
        let policy = PolicyRecord { replicas: own, ..self.policy.unwrap_or_default() };
        self.policy = (policy != PolicyRecord::default()).then_some(policy);
    }

    /// What `version` counts the changes of, but for the extended attributes.
    fn judged(&self) -> InodeRecord {
        let InodeRecord { mode, owner, group, note, acl, .. } = self.clone();
        InodeRecord { mode, owner, group, note, acl, ..InodeRecord::default() }
    }

    /// For whom a file that nobody writes is kept: nobody has opened or changed it since it was closed for him.
    pub fn is_kept(&self) -> Option<&KeptRecord> {
        self.kept.as_ref().filter(|kept| self.writer.is_none() && kept.generation == self.generation)
    }
}

/// What a file is kept with for its holder when this writer ends; of one that was taken from its holder no holder.
pub fn kept(writer: &WriterRecord) -> KeptRecord {
    let (began_length, began_generation) = match writer.appending {
        true => (writer.began_length, writer.began_generation),
        false => (0, FIRST_GENERATION),
    };
    KeptRecord {
        generation: 0,
        holder: if writer.released { String::new() } else { writer.holder.clone() },
        block_base: writer.block_base,
        block_number: writer.block_number,
        began_length,
        began_generation,
    }
}

/// Attributes as they are remembered with an answer: those of a file that somebody closed or a directory that somebody made.
pub fn remembered(attributes: &Attributes) -> AttributesRecord {
    let said = |name: &String| (!name.is_empty()).then(|| name.clone());
    let record = InodeRecord {
        directory: attributes.directory,
        length: attributes.length,
        modified: attributes.modified_ms,
        created: attributes.created_ms,
        accessed: attributes.accessed_ms,
        mode: attributes.mode,
        owner: said(&attributes.owner),
        group: said(&attributes.group),
        generation: attributes.generation,
        note: attributes.note.clone(),
        acl: (!attributes.acl.is_empty()).then(|| Acl { entries: attributes.acl.clone() }),
        version: attributes.version,
        children: attributes.children,
        ..InodeRecord::default()
    };
    AttributesRecord { inode: attributes.inode, record: Some(record) }
}
