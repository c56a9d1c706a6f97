//! The methods of ClientProtocol: who does each, whether it changes anything, and whether its answer is kept.

use crate::caller::Caller;
use crate::files::{self, located};
use crate::gateway::Gateway;
use crate::message::{decode, files as open, names as named, policies, status};
use crate::refusal::Refusal;
use crate::{cluster, names};
use bytes::Bytes;
use prost::Message;
use std::pin::Pin;
use std::sync::Arc;

/// A call that is being done: the encoded answer, without its length.
pub type Doing<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, Refusal>> + Send + 'a>>;

/// One of the methods.
pub struct Method {
    /// As clients call it.
    pub name: &'static str,
    /// What it does to the store.
    pub effect: Effect,
    /// Does a call of it.
    pub call: for<'a> fn(&'a Arc<Gateway>, &'a Caller, Bytes) -> Doing<'a>,
}

/// What a method does to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It changes nothing, and may wait for the store: nobody needs its answer when the client is gone.
    Reads,
    /// It changes a name, an attribute or a file: safe mode refuses it.
    Changes,
    /// The same, and it may be done only once: Hadoop marks it so, and its answer is kept.
    Once(Elsewhere),
    /// It is done to its end, also in safe mode.
    Others,
}

use Effect::{Changes, Once, Others, Reads};

/// What a client hears that asks again for what another gateway did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// The file that was made there: it is open here from now on.
    Created,
    /// The same of a file that was opened to write at its end.
    Appended,
    /// Yes. Where the answer is no, it may have been done there.
    Yes,
    /// Nothing but that it was done.
    Nothing,
}

impl Method {
    /// The method of this name.
    pub fn find(name: &str) -> Option<&'static Method> {
        METHODS.binary_search_by_key(&name, |method| method.name).ok().map(|at| &METHODS[at])
    }

    /// Whether safe mode refuses it.
    pub fn changes(&self) -> bool {
        matches!(self.effect, Changes | Once(_))
    }
}

/// What is said to a client. Written out for each kind: prost knows other messages for `bool` and bytes than Hadoop has.
trait Answer {
    fn bytes(self) -> Vec<u8>;
}

impl Answer for () {
    fn bytes(self) -> Vec<u8> {
        Vec::new()
    }
}

impl Answer for bool {
    fn bytes(self) -> Vec<u8> {
        named::BoolAnswer { result: self }.encode_to_vec()
    }
}

/// It is encoded already.
impl Answer for Vec<u8> {
    fn bytes(self) -> Vec<u8> {
        self
    }
}

macro_rules! answers {
    ($($module:ident { $($name:ident)* })*) => {
        $($(impl Answer for $module::$name {
            fn bytes(self) -> Vec<u8> {
                self.encode_to_vec()
            }
        })*)*
    };
}

answers! {
    open { AppendAnswer BlockAnswer CreateAnswer ListOpenFilesAnswer }
    named {
        AclAnswer BatchedListingAnswer BlockSizeAnswer EnclosingRootAnswer ListingAnswer StatusAnswer XattrsAnswer
    }
    policies {
        CodecsAnswer CodingPoliciesAnswer CodingPolicyAnswer QuotaAnswer StoragePoliciesAnswer StoragePolicyAnswer
        SummaryAnswer
    }
    status {
        CorruptFilesAnswer DatanodeReportAnswer EndOfList Number ReplicatedBlockStats ServerDefaultsAnswer
        StorageReportAnswer StoreStats StripedBlockStats TopologyAnswer YesOrNo
    }
}

/// Does a call: of whoever takes what is asked, of whoever only wants a superuser, or of nobody.
macro_rules! call {
    ($name:literal, refused) => {
        |_, _, _| Box::pin(std::future::ready(Err(cluster::unsupported($name))))
    };
    ($name:literal, superuser $($room:ident)::+) => {
        |_, caller, _| Box::pin(async move { Ok($($room)::+(caller, $name).await?.bytes()) })
    };
    ($name:literal, $($room:ident)::+) => {
        |gateway, caller, request| {
            Box::pin(async move { Ok($($room)::+(gateway, caller, decode(request)?).await?.bytes()) })
        }
    };
}

/// Makes the table of lines: a name, what it does to the store, and who does it.
macro_rules! methods {
    ($($name:literal, $effect:expr => [$($who:tt)*];)*) => {
        /// All of them, sorted by name.
        static METHODS: &[Method] =
            &[$(Method { name: $name, effect: $effect, call: call!($name, $($who)*) }),*];
    };
}

methods! {
    "abandonBlock", Changes => [files::abandon_block];
    "addBlock", Changes => [files::add_block];
    "addCacheDirective", Others => [refused];
    "addCachePool", Others => [refused];
    "addErasureCodingPolicies", Others => [refused];
    "allowSnapshot", Others => [refused];
    "append", Once(Elsewhere::Appended) => [files::append];
    "cancelDelegationToken", Others => [refused];
    "checkAccess", Reads => [names::calls::check_access];
    "complete", Changes => [files::complete];
    "concat", Once(Elsewhere::Nothing) => [names::change::concat];
    "create", Once(Elsewhere::Created) => [files::create];
    "createEncryptionZone", Others => [refused];
    "createSnapshot", Others => [refused];
    "createSymlink", Others => [names::calls::create_symlink];
    "delete", Once(Elsewhere::Yes) => [names::change::delete];
    "deleteSnapshot", Others => [refused];
    "disableErasureCodingPolicy", Others => [refused];
    "disallowSnapshot", Others => [refused];
    "enableErasureCodingPolicy", Others => [refused];
    "finalizeUpgrade", Others => [superuser cluster::nothing_to_do];
    "fsync", Changes => [files::fsync];
    "getAclStatus", Reads => [names::calls::acl];
    "getAdditionalDatanode", Changes => [files::additional_datanode];
    "getBatchedListing", Reads => [names::listing::batched];
    "getBlockLocations", Reads => [located::get_block_locations];
    "getContentSummary", Reads => [names::calls::summary];
    "getCurrentEditLogTxid", Others => [cluster::edits];
    "getDataEncryptionKey", Others => [cluster::nothing];
    "getDatanodeReport", Reads => [cluster::datanode_report];
    "getDatanodeStorageReport", Reads => [cluster::datanode_storage_report];
    "getDelegationToken", Others => [cluster::nothing];
    "getECTopologyResultForPolicies", Others => [cluster::topology];
    "getEZForPath", Others => [cluster::nothing];
    "getEditsFromTxid", Others => [refused];
    "getEnclosingRoot", Others => [names::calls::enclosing_root];
    "getErasureCodingCodecs", Others => [names::calls::codecs];
    "getErasureCodingPolicies", Others => [names::calls::coding_policies];
    "getErasureCodingPolicy", Reads => [names::calls::coding_policy];
    "getFileInfo", Reads => [names::calls::info];
    "getFileLinkInfo", Reads => [names::calls::info];
    "getFsECBlockGroupStats", Others => [cluster::striped_blocks];
    "getFsReplicatedBlockStats", Others => [cluster::replicated_blocks];
    "getFsStats", Reads => [cluster::stats];
    "getHAServiceState", Others => [cluster::state];
    "getLinkTarget", Reads => [names::calls::link_target];
    "getListing", Reads => [names::calls::listing];
    "getLocatedFileInfo", Reads => [names::calls::located_info];
    "getPreferredBlockSize", Reads => [names::calls::block_size];
    "getQuotaUsage", Reads => [names::calls::quota_usage];
    "getServerDefaults", Others => [cluster::server_defaults];
    "getSlowDatanodeReport", Others => [cluster::nothing];
    "getSnapshotDiffReport", Others => [refused];
    "getSnapshotDiffReportListing", Others => [refused];
    "getSnapshotListing", Others => [cluster::nothing];
    "getSnapshottableDirListing", Others => [cluster::nothing];
    "getStoragePolicies", Others => [names::calls::storage_policies];
    "getStoragePolicy", Reads => [names::calls::storage_policy];
    "getXAttrs", Reads => [names::calls::xattrs];
    "isFileClosed", Reads => [files::is_file_closed];
    "listCacheDirectives", Others => [cluster::end_of_list];
    "listCachePools", Others => [cluster::end_of_list];
    "listCorruptFileBlocks", Others => [cluster::corrupt_files];
    "listEncryptionZones", Others => [cluster::end_of_list];
    "listOpenFiles", Reads => [files::list];
    "listReencryptionStatus", Others => [cluster::end_of_list];
    "listXAttrs", Reads => [names::calls::list_xattrs];
    "metaSave", Others => [refused];
    "mkdirs", Changes => [names::change::mkdirs];
    "modifyAclEntries", Changes => [names::calls::modify_acl];
    "modifyCacheDirective", Others => [refused];
    "modifyCachePool", Others => [refused];
    "msync", Others => [cluster::nothing];
    "recoverLease", Changes => [files::recover_lease];
    "reencryptEncryptionZone", Others => [refused];
    "refreshNodes", Others => [superuser cluster::nothing_to_do];
    "removeAcl", Changes => [names::calls::remove_acl];
    "removeAclEntries", Changes => [names::calls::remove_acl_entries];
    "removeCacheDirective", Others => [refused];
    "removeCachePool", Others => [refused];
    "removeDefaultAcl", Changes => [names::calls::remove_default_acl];
    "removeErasureCodingPolicy", Others => [refused];
    "removeXAttr", Once(Elsewhere::Nothing) => [names::xattrs::remove];
    "rename", Once(Elsewhere::Yes) => [names::change::rename];
    "rename2", Once(Elsewhere::Nothing) => [names::change::rename2];
    "renameSnapshot", Others => [refused];
    "renewDelegationToken", Others => [refused];
    "renewLease", Others => [files::renew_lease];
    "reportBadBlocks", Others => [files::report_bad_blocks];
    "restoreFailedStorage", Others => [cluster::restore_failed_storage];
    "rollEdits", Others => [cluster::roll_edits];
    "rollingUpgrade", Others => [superuser cluster::nothing_to_do];
    "satisfyStoragePolicy", Changes => [names::calls::satisfy_storage_policy];
    "saveNamespace", Others => [superuser cluster::always];
    "setAcl", Changes => [names::calls::set_acl];
    "setBalancerBandwidth", Others => [superuser cluster::nothing_to_do];
    "setErasureCodingPolicy", Changes => [names::policies::set_coding_policy];
    "setOwner", Changes => [names::set::owner];
    "setPermission", Changes => [names::set::permission];
    "setQuota", Changes => [names::usage::set_quota];
    "setReplication", Changes => [names::set::replication];
    "setSafeMode", Others => [cluster::safe_mode];
    "setStoragePolicy", Changes => [names::calls::set_storage_policy];
    "setTimes", Changes => [names::set::times];
    "setXAttr", Once(Elsewhere::Nothing) => [names::xattrs::set];
    "truncate", Changes => [names::change::truncate];
    "unsetErasureCodingPolicy", Changes => [names::calls::unset_coding_policy];
    "unsetStoragePolicy", Changes => [names::calls::unset_storage_policy];
    "updateBlockForPipeline", Changes => [files::update_block];
    "updatePipeline", Once(Elsewhere::Nothing) => [files::update_pipeline];
    "upgradeStatus", Others => [superuser cluster::always];
}

#[cfg(test)]
mod tests {
    use super::{METHODS, Method};

    /// The table is searched by halves.
    #[test]
    fn sorted() {
        assert!(METHODS.is_sorted_by(|one, next| one.name < next.name));
        assert!(METHODS.iter().all(|method| Method::find(method.name).is_some_and(|found| found.name == method.name)));
        assert!(Method::find("getNothing").is_none());
    }
}
