//! Changing names and what they stand for: mkdirs, rename, delete, concat, truncate.

use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::hdfs_attributes::HdfsAttributes;
use crate::message::names::{
    ConcatRequest, DeleteRequest, MkdirsRequest, Rename2Request, RenameRequest, TruncateRequest,
};
use crate::names::creation;
use crate::names::looks::{Looks, looked};
use crate::names::resolved_path::{Purpose, ResolvedPath, Written, refused};
use crate::refusal::{
    ALREADY_BEING_CREATED, FILE_EXISTS, FILE_NOT_FOUND, ILLEGAL_ARGUMENT, JAVA_ARGUMENT, NOT_EMPTY, Refusal,
};
use base::error::{Error, ErrorKind};
use base::limit::CONCAT_FILES_MAX;
use base::permission::{Denied, READ, WRITE, Wanted};
use client::{Attributes, DirectoryOptions, Looked, Seen};

/// Does mkdirs: true, also if it is there.
pub(crate) async fn mkdirs(gateway: &Gateway, caller: &Caller, ask: MkdirsRequest) -> Result<bool, Refusal> {
    let MkdirsRequest { path: text, masked, parents, open } = ask;
    let written = Written::read(gateway, caller, &text, Purpose::Create).await?;
    let options = DirectoryOptions { parents, ..creation::directory_options((masked, open)) };
    let mut looks = Looks::default();
    loop {
        let error = match caller.judged(&gateway.client).make_directory_with(&written.path, options.clone()).await {
            Err(error) if is_denied(&error) => return Err(refused(error, Purpose::Create)),
            Err(error) => error,
            Ok(()) => return Ok(true),
        };
        let resolved = ResolvedPath::look(gateway, caller, &text, Purpose::Create, Wanted::default()).await?;
        match resolved.last() {
            Some(existing) if !existing.directory => {
                return Err(Refusal::new(FILE_EXISTS, format!("Path is not a directory: {text}")));
            }
            Some(_) => return Ok(true),
            None if !parents => creation::check_parent(&resolved)?,
            None => {}
        }
        looks.unexplained(error)?;
    }
}

/// Whether the store did not make a change that was sent to it without a look before: then the look says why, or what to do.
pub(crate) fn is_refused(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Stale | ErrorKind::NotFound | ErrorKind::Exists | ErrorKind::Invalid)
}

/// Whether the caller lacks a right.
fn is_denied(error: &Error) -> bool {
    error.kind() == ErrorKind::Denied
}

/// Does rename, which only says whether it could. Into a directory that is there it moves under its own name.
pub(crate) async fn rename(gateway: &Gateway, caller: &Caller, ask: RenameRequest) -> Result<bool, Refusal> {
    let from = Written::read(gateway, caller, &ask.from, Purpose::Write).await?;
    let mut to = Written::read(gateway, caller, &ask.to, Purpose::Create).await?;
    if !from.possible || from.is_root() || from.path == to.path {
        let wanted = Wanted { parent: WRITE, ..Wanted::default() };
        let there = ResolvedPath::look(gateway, caller, &ask.from, Purpose::Write, wanted).await?;
        let wanted = Wanted { ancestor: WRITE, ..Wanted::default() };
        ResolvedPath::look(gateway, caller, &ask.to, Purpose::Create, wanted).await?;
        // A directory would come into itself.
        return Ok(there.last().is_some_and(|there| !there.directory));
    }
    let store = caller.judged(&gateway.client);
    let error = match store.rename(&from.path, &to.path, false).await {
        Ok(()) => return Ok(true),
        Err(error) => error,
    };
    // Whether it was a directory that is there: then other rights are wanted, too.
    let there = ResolvedPath::look(gateway, caller, &ask.to, Purpose::Create, Wanted::default()).await;
    let error = match there {
        Ok(there) if there.last().is_some_and(|there| there.directory) => {
            let inside = format!("{}/{}", to.path.trim_end_matches('/'), from.name());
            to = Written::read(gateway, caller, &inside, Purpose::Create).await?;
            match store.rename(&from.path, &to.path, false).await {
                Ok(()) => return Ok(true),
                Err(error) => error,
            }
        }
        _ => error,
    };
    let below_file = matches!(Denied::read(&error), Some(Denied::NotDirectory { .. }));
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::Exists => Ok(false),
        ErrorKind::Invalid if !below_file => Ok(false),
        _ => {
            let purpose = side_of(&error, &from);
            Err(refused(error, purpose))
        }
    }
}

/// What is to be done with the path of a rename that leads below a file.
fn side_of(error: &Error, from: &Written) -> Purpose {
    match Denied::read(error) {
        Some(Denied::NotDirectory { path }) if !from.path.starts_with(&format!("{path}/")) => Purpose::Create,
        _ => Purpose::Write,
    }
}

/// Does rename2, which says why it could not.
pub(crate) async fn rename2(gateway: &Gateway, caller: &Caller, ask: Rename2Request) -> Result<(), Refusal> {
    let from = Written::read(gateway, caller, &ask.from, Purpose::Write).await?;
    let to = Written::read(gateway, caller, &ask.to, Purpose::Create).await?;
    let to_trash = ask.to_trash == Some(true);
    let (mut looks, mut judged) = (Looks::default(), None);
    loop {
        // What is no path of the store's, or is the same, is looked at alone.
        let error = if from.possible && from.path != to.path {
            let store = match judged.take() {
                Some(judged) => caller.judged(&gateway.client).relying_on(looks.walked(judged)),
                None => caller.judged(&gateway.client),
            };
            let renamed = match to_trash {
                true => store.rename_away(&from.path, &to.path, ask.overwrite).await,
                false => store.rename(&from.path, &to.path, ask.overwrite).await,
            };
            match renamed {
                Ok(()) => return Ok(()),
                Err(error) if is_unjudged(&error) => {
                    looks.unjudged(&error)?;
                    judged = Some(judge_below(gateway, caller, &from.path).await?);
                    continue;
                }
                // What is no refusal may have been done, here or at another gateway: a look would explain it wrongly.
                Err(error) if is_denied(&error) || !is_refused(&error) => return Err(error.into()),
                Err(error) => error,
            }
        } else {
            Error::new(ErrorKind::NotFound, format!("{} cannot be renamed", from.path))
        };
        let there = check_rename(gateway, caller, &ask).await?;
        // What was found above fits, so what is in the way is what the directory has in it.
        if error.kind() == ErrorKind::Exists && there.is_some_and(|there| there.directory) {
            return Err(Refusal::io(format!("rename destination directory is not empty: {}", to.path)));
        }
        looks.unexplained(error)?;
    }
}

/// Says why a rename2 may not be done, if there is a reason; else what has the new name.
async fn check_rename(gateway: &Gateway, caller: &Caller, ask: &Rename2Request) -> Result<Option<Attributes>, Refusal> {
    let (parent, ancestor) =
        (Wanted { parent: WRITE, ..Wanted::default() }, Wanted { ancestor: WRITE, ..Wanted::default() });
    let from = ResolvedPath::look(gateway, caller, &ask.from, Purpose::Write, parent).await?;
    let to = ResolvedPath::look(gateway, caller, &ask.to, Purpose::Create, ancestor).await?;
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
    Ok(to.last().cloned())
}

/// Does delete: false if there is nothing of that name, and for the root.
pub(crate) async fn delete(gateway: &Gateway, caller: &Caller, ask: DeleteRequest) -> Result<bool, Refusal> {
    let written = Written::read(gateway, caller, &ask.path, Purpose::Write).await?;
    if !written.possible {
        return Ok(false);
    }
    if written.is_root() {
        judge_removing(gateway, caller, &written.path).await?;
        let some = !gateway.client.list("/", "", 1).await?.entries.is_empty();
        return if some && !ask.recursive { Err(not_empty(&written.path)) } else { Ok(false) };
    }
    let (mut looks, mut judged) = (Looks::default(), None);
    loop {
        let store = match judged.take() {
            Some(judged) => caller.judged(&gateway.client).relying_on(looks.walked(judged)),
            None => caller.judged(&gateway.client),
        };
        match store.delete_judged(&written.path, ask.recursive).await {
            Ok(()) => return Ok(true),
            Err(error) if is_unjudged(&error) => {
                looks.unjudged(&error)?;
                judged = Some(judge_below(gateway, caller, &written.path).await?);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Exists => {
                // That somebody may not is said before, as HDFS does: also of what is below.
                judge_removing(gateway, caller, &written.path).await?;
                return Err(not_empty(&written.path));
            }
            Err(error) if Denied::read(&error).is_some() => return Err(error.into()),
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
) -> Result<(ResolvedPath, Vec<String>, Vec<Seen>), Refusal> {
    let argument = |text: String| Err(Refusal::new(ILLEGAL_ARGUMENT, text));
    let target = ResolvedPath::look(gateway, caller, &ask.target, Purpose::Write, Wanted::access(WRITE)).await?;
    let whole = target.file()?;
    if whole.open {
        return argument(format!("concat: target file {} is under construction", ask.target));
    }
    let target_blocks = HdfsAttributes::read(&whole.note).block_size();
    let mut seen: Vec<Seen> = Vec::with_capacity(ask.sources.len().min(1024));
    let mut sources: Vec<String> = Vec::with_capacity(ask.sources.len().min(1024));
    for text in &ask.sources {
        let wanted = Wanted { access: READ, parent: WRITE, ..Wanted::default() };
        let source = ResolvedPath::look(gateway, caller, text, Purpose::Write, wanted).await?;
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
        let blocks = HdfsAttributes::read(&part.note).block_size();
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
        let resolved = ResolvedPath::look(gateway, caller, &ask.path, Purpose::Write, Wanted::access(WRITE)).await?;
        let file = resolved.file()?;
        if !file.open && file.length < ask.length {
            let text = format!(
                "Cannot truncate to a larger file size. Current size: {}, truncate size: {}.",
                file.length, ask.length
            );
            return Err(Refusal::new(ILLEGAL_ARGUMENT, text));
        }
        match gateway.client.relying_on(resolved.looked()).truncate(&resolved.path, ask.length).await {
            Err(error) if error.kind() == ErrorKind::Busy && file.open => {
                return Err(Refusal::new(ALREADY_BEING_CREATED, error.text()));
            }
            Err(error) => looks.again(error)?,
            Ok(_) => return Ok(true),
        }
    }
}

/// Whether the way leads below another.
fn is_below(resolved: &ResolvedPath, above: &ResolvedPath) -> bool {
    resolved.path.strip_prefix(above.path.as_str()).is_some_and(|rest| rest.starts_with('/'))
}

fn not_empty(path: &str) -> Refusal {
    Refusal::new(NOT_EMPTY, format!("{path} is non empty"))
}

/// Whether the store wants what is below a directory to be judged before.
fn is_unjudged(error: &Error) -> bool {
    matches!(Denied::read(error), Some(Denied::Below { .. }))
}

/// Has the store judge whether the caller could remove everything below a directory, which he does not.
async fn judge_removing(gateway: &Gateway, caller: &Caller, path: &str) -> Result<(), Refusal> {
    // Superusers may: nobody walks for that.
    if caller.superuser { Ok(()) } else { judge_below(gateway, caller, path).await.map(drop) }
}

/// Has the store judge whether the caller may remove everything below a directory: what the removal relies on then.
async fn judge_below(gateway: &Gateway, caller: &Caller, path: &str) -> Result<Looked, Refusal> {
    // Nothing was changed yet: nobody walks for a client that is gone.
    caller.share.set_changes(false);
    let _turn = caller.share.stand(gateway.walks.turn(&caller.user)).await?;
    let judged = caller.judged(&gateway.client).judge_below(path).await?;
    caller.share.set_changes(true);
    Ok(judged)
}
