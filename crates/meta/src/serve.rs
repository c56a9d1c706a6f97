//! Which requests there are and who does them: one line each.

use crate::path::Path;
use crate::reply::Reply;
use crate::request::{Caller, FileRef, Request, Totals};
use crate::state::State;
use base::error::Result;
use base::limit::{SHORT_LOCATED_PAGE, SHORT_PAGE};

/// Files that are joined in a small part of a millisecond.
const SHORT_CONCAT: usize = 64;

impl Request {
    /// Whether it may change the state; others are reads and are answered from it.
    pub fn is_change(&self) -> bool {
        !matches!(
            self,
            Request::Stat { .. }
                | Request::Lookup { .. }
                | Request::JudgeBelow { .. }
                | Request::PathOf { .. }
                | Request::Answered { .. }
                | Request::List { .. }
                | Request::Locate { .. }
                | Request::GetXattrs { .. }
                | Request::GetPolicy { .. }
                | Request::GetQuota { .. }
                | Request::DiskUsage { .. }
                | Request::Usage
                | Request::Sessions
                | Request::SessionLeases { .. }
                | Request::SessionsOver { .. }
                | Request::DeviceReport { .. }
                | Request::DeviceList
                | Request::DevicesRemoved { .. }
                | Request::NodeReport { .. }
                | Request::NodeList
                | Request::NodeFind { .. }
                | Request::NodesSilent
                | Request::BagStat { .. }
                | Request::BagList { .. }
                | Request::Garbage { .. }
                | Request::KnownGroups { .. }
                | Request::FilesIn { .. }
                | Request::GroupsOn { .. }
                | Request::LacksWithout { .. }
                | Request::Lacking { .. }
                | Request::BagOf { .. }
                | Request::FenceList { .. }
                | Request::Renew
                | Request::Holders { .. }
        )
    }

    /// Whether its answer is remembered: that of every change is, as another client's may come between the first time and the second. It
    /// needs an open session. Left out is only what cannot undo anything when it is done again, whatever came between:
    pub fn is_remembered(&self) -> bool {
        match self {
            Request::For { request, .. } => request.is_remembered(),
            Request::Provided { change, .. } | Request::Asked { change, .. } => change.is_remembered(),
            // A session that is open stays open, one that is over stays over, and no other client draws its name.
            Request::OpenSession { .. } | Request::CloseSession => false,
            // A node's own, and never lost on the way. An older start of the node is refused by its number.
            Request::NodeJoin { .. } | Request::DeviceRegister { .. } => false,
            // A node's own. Each names the state that it changes, and is refused once there is another one.
            Request::DeviceRemove { .. }
            | Request::DeviceBack { .. }
            | Request::MoveGroup { .. }
            | Request::AddReplica { .. }
            | Request::BagMembers { .. }
            | Request::BagSealed { .. }
            | Request::Recovered { .. } => false,
            // A node's own, which asks once.
            Request::DeviceGivenUp { .. } => false,
            // A node's own. What was collected is gone, and its number is not used again.
            Request::Collected { .. } => false,
            change => change.is_change(),
        }
    }

    /// Whether it names so many paths that it may take milliseconds.
    pub fn is_long(&self) -> bool {
        match self {
            Request::For { request, .. } => request.is_long(),
            Request::Provided { change, .. } | Request::Asked { change, .. } => change.is_long(),
            Request::Concat { sources, .. } => sources.len() > SHORT_CONCAT,
            Request::List { limit, located, .. } => *limit > if *located { SHORT_LOCATED_PAGE } else { SHORT_PAGE },
            _ => false,
        }
    }

    /// Whether it sets something to what it says, for the fault of that name.
    pub fn is_setting(&self) -> bool {
        match self {
            Request::Provided { change, .. } | Request::Asked { change, .. } => change.is_setting(),
            Request::Mkdir { parents, .. } => *parents,
            Request::SetAttributes { .. } | Request::SetPolicy { .. } | Request::SetQuota { .. } => true,
            _ => false,
        }
    }
}

impl Request {
    /// The paths that a change names, of which somebody may have looked up what they stand for.
    pub fn paths(&self) -> Vec<&Path> {
        match self {
            Request::Create { path, .. }
            | Request::AppendOpen { file: FileRef::Path(path), .. }
            | Request::Delete { path, .. }
            | Request::SetAttributes { path, .. }
            | Request::SetXattr { path, .. }
            | Request::Truncate { path, .. } => vec![path],
            Request::Rename { from, to, .. } => vec![from, to],
            Request::Concat { target, sources } => std::iter::once(target).chain(sources).collect(),
            _ => Vec::new(),
        }
    }

    /// Whether this can be the remembered answer to it.
    pub fn is_answered_by(&self, reply: &Reply) -> bool {
        match self {
            Request::Provided { change, .. } | Request::Asked { change, .. } => change.is_answered_by(reply),
            Request::Create { .. } | Request::AppendOpen { .. } => matches!(reply, Reply::Handle(_)),
            Request::NextGroup { .. } | Request::PackGroup { .. } => matches!(reply, Reply::Group(_)),
            Request::PutFiles { .. } => matches!(reply, Reply::Files(_)),
            Request::BagCreate { .. } | Request::BagRewind { .. } | Request::BagSeal { .. } => {
                matches!(reply, Reply::Bag(_))
            }
            Request::SetQuota { .. } => matches!(reply, Reply::Quota(_)),
            Request::Fence { .. } => matches!(reply, Reply::Orphans(_) | Reply::Attributes(_)),
            Request::Mkdir { .. } | Request::Close { .. } | Request::Truncate { .. } | Request::Concat { .. } => {
                matches!(reply, Reply::Attributes(_))
            }
            _ => matches!(reply, Reply::Done),
        }
    }
}

impl State {
    /// Answers a read.
    pub fn read(&mut self, caller: Caller, request: Request) -> Result<Reply> {
        self.judge(&request)?;
        match request {
            Request::Stat { path } => self.stat(&path),
            Request::Lookup { path, known, .. } => self.lookup(&path, known),
            Request::JudgeBelow { path, resume, empty } => self.judge_below(&path, resume.as_deref(), empty),
            Request::PathOf { inode } => self.answer_path_of(inode),
            Request::Answered { asked } => self.answered(caller.session, asked),
            Request::List { path, after, limit, located, also } => {
                self.list(&path, after.as_deref(), (limit, located), &also)
            }
            Request::Locate { file, offset, length } => self.locate(&file, offset, length),
            Request::GetXattrs { path, name } => self.get_xattrs(&path, name.as_deref()),
            Request::GetPolicy { path } => self.get_policy(&path),
            Request::GetQuota { path } => self.get_quota(&path),
            Request::DiskUsage { path, resume } => self.disk_usage(&path, resume.as_deref()),
            Request::Usage => self.usage(),
            Request::Sessions => Ok(Reply::Sessions(self.sessions.count() as u64)),
            Request::DeviceReport { devices } => self.report_devices(&devices),
            Request::DeviceList => {
                // Registrations are in memory when they are in the log, durable or not yet.
                self.layers.observe(self.sequence());
                Ok(Reply::Devices(self.list_devices()))
            }
            Request::DevicesRemoved { devices } => self.were_removed(&devices),
            Request::SessionLeases { only, limit } => {
                // Sessions are in memory when they are in the log, durable or not yet.
                self.layers.observe(self.sequence());
                Ok(Reply::Leases(self.sessions.leases(self.now, only, limit)))
            }
            Request::SessionsOver { marks } => {
                // Devices forget what they know of them: it has to be durable first.
                self.layers.observe(self.sequence());
                Ok(Reply::SessionsOver(self.sessions.over(marks)))
            }
            Request::NodeReport { node, keeps, devices } => self.report_node(node, keeps, &devices),
            Request::NodeList => {
                self.layers.observe(self.sequence());
                Ok(self.list_nodes())
            }
            Request::NodeFind { node, devices } => {
                self.layers.observe(self.sequence());
                Ok(self.find_node(node, &devices))
            }
            Request::NodesSilent => {
                self.layers.observe(self.sequence());
                Ok(self.silent_nodes())
            }
            Request::BagStat { name } => self.stat_bag(&name),
            Request::BagList { after, limit } => self.list_bags(after.as_deref(), limit),
            Request::Garbage { ranges_after, bags_after, limit } => self.garbage(ranges_after, bags_after, limit),
            Request::KnownGroups { groups } => self.known_groups(&groups),
            Request::GroupsOn { device, after, limit } => self.groups_on(device, after, limit),
            Request::LacksWithout { device, after } => self.lacks_without(device, after),
            Request::Lacking { after, limit, avoid } => self.lacking(after, limit, &avoid),
            Request::BagOf { bag } => self.bag_info(bag).map(Reply::Bag),
            Request::FilesIn { groups, resume } => self.files_in(&groups, resume.as_deref()),
            Request::FenceList { after, limit } => self.fence_list(after, limit),
            Request::Renew => self.renew(caller.session),
            Request::Holders { seen, asked } => self.holders_heard(&seen, &asked),
            change => unreachable!("{change:?} is a change"),
        }
    }

    /// Makes a change, in the transaction under way.
    pub fn serve(&mut self, caller: Caller, request: &Request) -> Result<Reply> {
        match request {
            Request::Provided { directories, seen, empty, below, change } => {
                if *directories != 0 || seen.is_empty() && below.is_none() {
                    self.check_directories(*directories)?;
                }
                self.check_seen(change, seen)?;
                self.check_empty(empty)?;
                self.asker.judged = *below;
                self.serve(caller, change)
            }
            Request::Asked { asked, change } => self.serve_asked(caller, *asked, change),
            change => {
                self.judge(change)?;
                self.make(caller, change)
            }
        }
    }

    /// Makes a change that its asker may make.
    fn make(&mut self, caller: Caller, request: &Request) -> Result<Reply> {
        let session = caller.session;
        match request {
            Request::OpenSession { user } => self.open_session(session, user),
            Request::CloseSession => self.end_session(session),
            Request::Mkdir { path, parents, new } => self.mkdir(path, *parents, new),
            Request::Create { path, overwrite, parents, new, replicas_max } => {
                self.create(session, path, *overwrite, *parents, (new, *replicas_max))
            }
            Request::AppendOpen { file, holder, began, at, replicas_max } => {
                self.append_open(session, file, holder, (*began, *at), *replicas_max)
            }
            Request::NextGroup { inode, generation, finished, columns_max, replicas_max, refused } => {
                let most = (*columns_max, *replicas_max);
                self.next_group_of(session, *inode, *generation, *finished, most, refused)
            }
            Request::SyncLength { inode, generation, group, length } => {
                self.sync_length(session, *inode, *generation, (*group, *length))
            }
            Request::Reserve { inode, generation, length } => self.reserve(session, *inode, *generation, *length),
            Request::BeginBlock { inode, generation, base, number } => {
                self.begin_block(session, *inode, *generation, (*base, *number))
            }
            Request::Close { inode, generation, finished, modified, mode } => {
                let attributes = (*modified, *mode);
                self.close(session, *inode, *generation, *finished, attributes)
            }
            Request::Abandon { inode, generation } => self.abandon(session, *inode, *generation),
            Request::PackGroup { policy, beside, replicas_max, refused } => {
                self.allocate_for_pack(session, *policy, (beside.as_ref(), *replicas_max), refused).map(Reply::Group)
            }
            Request::FinishPack { group } => self.finish_pack(session, *group),
            Request::PutFiles { files } => self.put_files(session, files),
            Request::Rename { from, to, replace, .. } => self.rename(from, to, *replace),
            Request::Delete { path, recursive } => self.delete(path, *recursive),
            Request::SetAttributes { path, new } => self.set_attributes(path, new),
            Request::SetXattr { path, name, value } => self.set_xattr(path, name, value.as_deref()),
            Request::Truncate { path, length } => self.truncate(path, *length),
            Request::Concat { target, sources } => self.concat(target, sources),
            Request::SetPolicy { path, policy } => self.set_policy(path, *policy),
            Request::SetQuota { path, names, bytes } => self.set_quota(path, *names, *bytes),
            Request::DeviceRegister { device, class, capacity, node } => {
                self.register_device(&self.registering(*device, *class, *capacity, *node))
            }
            Request::DeviceDrain { device } => self.drain_device(*device),
            Request::DeviceRemove { device } => self.remove_device(*device),
            Request::NodeJoin { node } => self.join_node(node),
            Request::NodeDrain { node } => self.drain_node(*node),
            Request::NodeRemove { node } => self.remove_node(*node),
            Request::MoveGroup { group, chunk, from, to } => self.move_group(*group, *chunk, *from, *to),
            Request::AddReplica { group, chunk, from, to } => self.add_replica(*group, *chunk, *from, *to),
            Request::DeviceLost { device } => self.lose_device(*device, false),
            Request::DeviceGivenUp { device } => self.lose_device(*device, true),
            Request::DeviceBack { device } => self.take_device_back(*device),
            Request::BagMembers { bag, state, joining, leaving } => {
                self.change_members(*bag, (*state, joining), *leaving)
            }
            Request::BagCreate { name, policy, chunk_size, retain, compression } => {
                self.create_bag(name, *policy, *chunk_size, *retain, *compression)
            }
            Request::BagRewind { name } => self.rewind_bag(name),
            Request::BagSeal { name } => self.seal_bag(name),
            Request::BagSealed { bag, epoch } => self.bag_sealed(*bag, *epoch),
            Request::BagDelete { name } => self.delete_bag(name),
            Request::Collected { groups, ranges, bags } => self.collected(groups, ranges, bags),
            Request::Fence { inode, only_gone, for_holder, generation } => {
                self.fence(session, *inode, (*only_gone, *for_holder), *generation)
            }
            Request::Recovered { inode, generation, length, without } => {
                self.recovered(*inode, *generation, *length, without)
            }
            read => unreachable!("{read:?} is a read"),
        }
    }

    fn usage(&mut self) -> Result<Reply> {
        // The counters have the newest change in them, so that is what this answer waits for.
        self.layers.observe(self.sequence());
        let counters = self.counters;
        Ok(Reply::Usage(Totals { files: counters.files, directories: counters.directories, bytes: counters.bytes }))
    }
}
