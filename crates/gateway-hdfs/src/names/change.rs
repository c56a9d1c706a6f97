//! Changing names and what they stand for: mkdirs, rename, delete, concat, truncate.

use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::message::names::{
    ConcatRequest, DeleteRequest, MkdirsRequest, Rename2Request, RenameRequest, TruncateRequest,
};
use crate::names::creation;
use crate::names::looks::{Looks, looked};
use crate::names::permission::{self, ALL, READ, WRITE, Wanted};
use crate::names::walk::Walk;
use crate::names::way::{Purpose, Way};
use crate::note::Note;
use crate::refusal::{
    ALREADY_BEING_CREATED, FILE_EXISTS, FILE_NOT_FOUND, ILLEGAL_ARGUMENT, JAVA_ARGUMENT, NOT_EMPTY,
    PARENT_NOT_DIRECTORY, Refusal,
};
use base::error::{Error, ErrorKind};
use base::limit::{CONCAT_FILES_MAX, EMPTY_DIRECTORIES_MAX};
use client::{Looked, Seen};

/// Does mkdirs: true, also if it is there.
pub(crate) async fn mkdirs(gateway: &Gateway, caller: &Caller, ask: MkdirsRequest) -> Result<bool, Refusal> {
    let MkdirsRequest { path, masked, parents, open } = ask;
    if let Some(creation) = creation::for_known(gateway, caller, &path, (masked, open), true)? {
        let known = creation.version;
        let (path, options) = creation.into_directory(known);
        match gateway.client.make_directory_with(&path, options).await {
            Err(error) if is_refused(&error) => (),
            done => return done.map(|()| true).map_err(Refusal::from),
        }
    }
    let mut looks = Looks::default();
    loop {
        let creation = creation::for_directory(gateway, caller, &path, parents, (masked, open)).await?;
        if creation.existing.is_some() {
            return Ok(true);
        }
        // Somebody else may make it meanwhile, which is as good; then the parents are there as well.
        let known = creation.version;
        let (path, options) = creation.into_directory(known);
        match gateway.client.make_directory_with(&path, options).await {
            Err(error) => looks.again(error)?,
            Ok(()) => return Ok(true),
        }
    }
}

/// Whether the store did not make a change that was sent to it without a look before: then the look says why, or what to do.
pub(crate) fn is_refused(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Stale | ErrorKind::NotFound | ErrorKind::Exists | ErrorKind::Invalid)
}

/// Renames without a question before, if nothing speaks against it as far as is known. False: nothing was done, look.
async fn known_rename(
    gateway: &Gateway,
    caller: &Caller,
    (from, to): (&str, &str),
    replace: bool,
) -> Result<bool, Refusal> {
    let Some(from) = Way::known(gateway, caller, from, Purpose::Write)? else { return Ok(false) };
    let Some(to) = Way::known(gateway, caller, to, Purpose::Create)? else { return Ok(false) };
    let free = |way: &Way| permission::may_change_names(&gateway.superuser, caller, way);
    if from.path == to.path || from.version != to.version || !free(&from) || !free(&to) {
        return Ok(false);
    }
    match caller.store(&gateway.client).rename_known(&from.path, &to.path, replace, to.version).await {
        Ok(()) => Ok(true),
        Err(error) if is_refused(&error) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Does rename, which only says whether it could. Into a directory that is there it moves under its own name.
pub(crate) async fn rename(gateway: &Gateway, caller: &Caller, ask: RenameRequest) -> Result<bool, Refusal> {
    if known_rename(gateway, caller, (&ask.from, &ask.to), false).await? {
        return Ok(true);
    }
    let mut looks = Looks::default();
    loop {
        let from = Way::look(gateway, caller, &ask.from, Purpose::Write).await?;
        let mut to = Way::look(gateway, caller, &ask.to, Purpose::Create).await?;
        if to.last().is_some_and(|there| there.directory) && !from.is_root() {
            let inside = format!("{}/{}", to.path.trim_end_matches('/'), from.name());
            to = Way::look(gateway, caller, &inside, Purpose::Create).await?;
        }
        permission::check(&gateway.superuser, caller, &from, Wanted { parent: WRITE, ..Wanted::default() })?;
        permission::check(&gateway.superuser, caller, &to, Wanted { ancestor: WRITE, ..Wanted::default() })?;
        if from.last().is_none() || from.is_root() {
            return Ok(false);
        }
        if from.path == to.path {
            return Ok(true);
        }
        if is_below(&to, &from) || to.last().is_some() || !to.has_parent() {
            return Ok(false);
        }
        let store = caller.store(&gateway.client).relying_on(looked(&from, &[to.seen()]));
        match store.rename(&from.path, &to.path, false).await {
            Ok(()) => return Ok(true),
            // Somebody was faster: as if it had been so before.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Exists | ErrorKind::Invalid) => {
                return Ok(false);
            }
            Err(error) => looks.again(error)?,
        }
    }
}

/// Does rename2, which says why it could not.
pub(crate) async fn rename2(gateway: &Gateway, caller: &Caller, ask: Rename2Request) -> Result<(), Refusal> {
    let whole = ask.to_trash != Some(true) || caller.superuser;
    if whole && known_rename(gateway, caller, (&ask.from, &ask.to), ask.overwrite).await? {
        return Ok(());
    }
    let mut looks = Looks::default();
    loop {
        let (from, to, empty) = to_rename(gateway, caller, &ask).await?;
        let directories = if whole { from.version } else { looks.walked(&from).directories };
        let relied_on = Looked { directories, empty, ..looked(&from, &[to.seen()]) };
        let store = caller.store(&gateway.client).relying_on(relied_on);
        match store.rename(&from.path, &to.path, ask.overwrite).await {
            Ok(()) => return Ok(()),
            // What was found above fits, so what is in the way is what the directory has in it.
            Err(error) if error.kind() == ErrorKind::Exists && to.last().is_some_and(|there| there.directory) => {
                return Err(Refusal::io(format!("rename destination directory is not empty: {}", to.path)));
            }
            Err(error) => looks.again(error)?,
        }
    }
}

/// The ways to both names of a rename2 that may be done as far as was seen, if these directories are empty.
async fn to_rename(gateway: &Gateway, caller: &Caller, ask: &Rename2Request) -> Result<(Way, Way, Vec<u64>), Refusal> {
    let from = Way::look(gateway, caller, &ask.from, Purpose::Write).await?;
    let to = Way::look(gateway, caller, &ask.to, Purpose::Create).await?;
    permission::check(&gateway.superuser, caller, &from, Wanted { parent: WRITE, ..Wanted::default() })?;
    let empty = if ask.to_trash == Some(true) { check_below(gateway, caller, &from).await? } else { Vec::new() };
    permission::check(&gateway.superuser, caller, &to, Wanted { ancestor: WRITE, ..Wanted::default() })?;
    let Some(source) = from.last() else {
        return Err(Refusal::not_found(format!("rename source {} is not found.", from.path)));
    };
    if from.is_root() {
        return Err(Refusal::io("rename source cannot be the root"));
    }
    if from.path == to.path {
        let text = format!("The source {} and destination {} are the same", from.path, to.path);
        return Err(Refusal::new(FILE_EXISTS, text));
    }
    if is_below(&to, &from) {
        let text = format!("Rename destination {} is a directory or file under source {}", to.path, from.path);
        return Err(Refusal::io(text));
    }
    if to.is_root() {
        return Err(Refusal::io("rename destination cannot be the root"));
    }
    if let Some(there) = to.last() {
        if there.directory != source.directory {
            let text = format!("Source {} and destination {} must both be directories", from.path, to.path);
            return Err(Refusal::io(text));
        }
        if !ask.overwrite {
            return Err(Refusal::new(FILE_EXISTS, format!("rename destination {} already exists", to.path)));
        }
    }
    if !to.has_parent() {
        return Err(Refusal::new(FILE_NOT_FOUND, format!("rename destination parent {} not found.", to.path)));
    }
    if to.parent().is_some_and(|parent| !parent.directory) {
        return Err(Refusal::new(PARENT_NOT_DIRECTORY, format!("rename destination parent {} is a file.", to.path)));
    }
    Ok((from, to, empty))
}

/// Does delete: false if there is nothing of that name, and for the root.
pub(crate) async fn delete(gateway: &Gateway, caller: &Caller, ask: DeleteRequest) -> Result<bool, Refusal> {
    if let Some(way) = Way::known(gateway, caller, &ask.path, Purpose::Write)?
        && permission::may_change_names(&gateway.superuser, caller, &way)
    {
        // Of what is below a directory others than a superuser need the rights, so they do not remove it unseen.
        let recursive = ask.recursive && caller.superuser;
        match caller.store(&gateway.client).delete_known(&way.path, recursive, way.version).await {
            Err(error) if is_refused(&error) => (),
            done => return done.map(|()| true).map_err(Refusal::from),
        }
    }
    let mut looks = Looks::default();
    loop {
        let way = Way::look(gateway, caller, &ask.path, Purpose::Write).await?;
        permission::check(&gateway.superuser, caller, &way, Wanted { parent: WRITE, ..Wanted::default() })?;
        let Some(last) = way.last() else { return Ok(false) };
        let empty = check_below(gateway, caller, &way).await?;
        if way.is_root() {
            let some = !gateway.client.list("/", "", 1).await?.entries.is_empty();
            return if some && !ask.recursive { Err(not_empty(&way)) } else { Ok(false) };
        }
        let walked = last.directory && !caller.superuser;
        let relied_on = if walked { Looked { empty, ..looks.walked(&way) } } else { way.looked() };
        match caller.store(&gateway.client).relying_on(relied_on).delete(&way.path, ask.recursive).await {
            Ok(()) => return Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Exists => return Err(not_empty(&way)),
            Err(error) => looks.again(error)?,
        }
    }
}

/// Does concat: the sources' bytes go to the end of the target, and their names go.
pub(crate) async fn concat(gateway: &Gateway, caller: &Caller, ask: ConcatRequest) -> Result<(), Refusal> {
    let argument = |text: String| Err(Refusal::new(ILLEGAL_ARGUMENT, text));
    if ask.target.is_empty() || ask.sources.is_empty() {
        let text = if ask.target.is_empty() { "Target file name is empty" } else { "No sources given" };
        return Err(Refusal::new(JAVA_ARGUMENT, text));
    }
    if ask.sources.len() > CONCAT_FILES_MAX {
        return argument(format!(
            "concat: {} source files, and {CONCAT_FILES_MAX} are the most at once; nothing was changed: join them in several steps",
            ask.sources.len()
        ));
    }
    if let Some(path) = [&ask.target].into_iter().chain(&ask.sources).find(|path| path.starts_with("/.reserved/")) {
        return Err(Refusal::io(format!("Concat operation doesn't support /.reserved relative path : {path}")));
    }
    let mut looks = Looks::default();
    loop {
        let (target, sources, seen) = to_join(gateway, caller, &ask).await?;
        let store = caller.store(&gateway.client).relying_on(looked(&target, &seen));
        match store.concat(&target.path, &sources).await {
            Err(error) => looks.again(error)?,
            Ok(_) => return Ok(()),
        }
    }
}

/// The way to the target of a concat, the paths of its sources, and what was found there, if they may be joined as far as was seen.
async fn to_join(
    gateway: &Gateway,
    caller: &Caller,
    ask: &ConcatRequest,
) -> Result<(Way, Vec<String>, Vec<Seen>), Refusal> {
    let argument = |text: String| Err(Refusal::new(ILLEGAL_ARGUMENT, text));
    let target = Way::look(gateway, caller, &ask.target, Purpose::Write).await?;
    permission::check(&gateway.superuser, caller, &target, Wanted { access: WRITE, ..Wanted::default() })?;
    let whole = target.file()?;
    if whole.open {
        return argument(format!("concat: target file {} is under construction", ask.target));
    }
    let target_blocks = Note::read(&whole.note).block_size();
    let mut seen: Vec<Seen> = Vec::with_capacity(ask.sources.len().min(1024));
    let mut sources: Vec<String> = Vec::with_capacity(ask.sources.len().min(1024));
    for text in &ask.sources {
        let source = Way::look(gateway, caller, text, Purpose::Write).await?;
        permission::check(&gateway.superuser, caller, &source, Wanted { access: READ, ..Wanted::default() })?;
        permission::check(&gateway.superuser, caller, &source, Wanted { parent: WRITE, ..Wanted::default() })?;
        let part = source.file()?;
        if source.parent_path() != target.parent_path() {
            let path = &target.path;
            return argument(format!("Source file {text} is not in the same directory with the target {path}"));
        }
        if part.inode == whole.inode {
            let path = &target.path;
            return argument(format!("concat: the src file {text} is the same with the target file {path}"));
        }
        if part.open || part.length == 0 {
            return argument(format!("concat: source file {text} is invalid or empty or underConstruction"));
        }
        let blocks = Note::read(&part.note).block_size();
        if blocks > target_blocks {
            return argument(format!(
                "concat: source file {text} has preferred block size {blocks} which is greater than the target file's \
                 preferred block size {target_blocks}"
            ));
        }
        if sources.contains(&source.path) {
            return argument("concat: at least two of the source files are the same".to_string());
        }
        seen.push(source.seen());
        sources.push(source.path);
    }
    Ok((target, sources, seen))
}

/// Does truncate: true, it is done at once.
pub(crate) async fn truncate(gateway: &Gateway, caller: &Caller, ask: TruncateRequest) -> Result<bool, Refusal> {
    let mut looks = Looks::default();
    loop {
        let way = Way::look(gateway, caller, &ask.path, Purpose::Write).await?;
        permission::check(&gateway.superuser, caller, &way, Wanted { access: WRITE, ..Wanted::default() })?;
        let file = way.file()?;
        if !file.open && file.length < ask.length {
            let text = format!(
                "Cannot truncate to a larger file size. Current size: {}, truncate size: {}.",
                file.length, ask.length
            );
            return Err(Refusal::new(ILLEGAL_ARGUMENT, text));
        }
        match gateway.client.relying_on(way.looked()).truncate(&way.path, ask.length).await {
            Err(error) if error.kind() == ErrorKind::Busy && file.open => {
                return Err(Refusal::new(ALREADY_BEING_CREATED, error.text()));
            }
            Err(error) => looks.again(error)?,
            Ok(_) => return Ok(true),
        }
    }
}

/// Whether the way leads below another.
fn is_below(way: &Way, above: &Way) -> bool {
    way.path.strip_prefix(above.path.as_str()).is_some_and(|rest| rest.starts_with('/'))
}

fn not_empty(way: &Way) -> Refusal {
    Refusal::new(NOT_EMPTY, format!("{} is non empty", way.path))
}

/// Whoever removes a tree must have all rights on every directory in it that has something in it. Directories that may go only because
/// they are empty: somebody else may put something there meanwhile.
async fn check_below(gateway: &Gateway, caller: &Caller, way: &Way) -> Result<Vec<u64>, Refusal> {
    let mut empty = Vec::new();
    let Some(last) = way.last().filter(|last| last.directory && !caller.superuser) else { return Ok(empty) };
    // Nothing was changed yet: nobody walks for a client that is gone.
    caller.share.set_changes(false);
    let _turn = caller.share.stand(gateway.walks.turn(&caller.user)).await?;
    let mut walk = Walk::new(gateway, &way.path, last.clone());
    loop {
        let next = walk.next().await?;
        if let Some((directory, path)) = walk.take_empty()
            && let Err(refusal) = permission::check_one(&gateway.superuser, caller, &directory, &path, ALL)
        {
            if empty.len() >= EMPTY_DIRECTORIES_MAX {
                return Err(refusal);
            }
            empty.push(directory.inode);
        }
        let Some((directory, path, entry)) = next else { break };
        if walk.is_first() {
            permission::check_one(&gateway.superuser, caller, &directory, &path, ALL)?;
        }
        let below = format!("{}/{}", path.trim_end_matches('/'), entry.name);
        permission::check_sticky(&gateway.superuser, caller, (&directory, &path), (&entry.attributes, &below))?;
    }
    caller.share.set_changes(true);
    Ok(empty)
}
