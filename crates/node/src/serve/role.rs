//! What a node is in its cluster: opens the metadata that it keeps alone, and prepares for what it keeps together with others.

use crate::home;
use crate::keepers::formation::{Formation, Given};
use crate::keepers::lanes::Lanes;
use crate::keepers::{self, Several};
use crate::keeping::metadata_directory;
use crate::loan::Loans;
use crate::membership::{Keepers, Membership};
use crate::metadata::{self, Carrier, Metadata};
use crate::metered::{DiskStats, MeteredDisk};
use crate::node::{Keeper, Role};
use crate::settings::{MetaPlace, Settings, shown};
use crate::world::{Ended, World};
use base::buffer::Pool;
use base::env::{Clock, Random};
use base::error::Result;
use base::id::NodeId;
use base::net::Net;
use meta::Seats;
use net::LinkSettings;
use os::disk::Backend;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

/// A metadata store, and what passed through its log.
type Stored = (Arc<Metadata>, Arc<DiskStats>);

/// What the node is in its cluster, and what begins to keep the metadata together with others, if it is told to.
pub fn role_of(
    (settings, world, directory): (&Settings, &Arc<dyn World>, &Path),
    (metadata, together): (Option<Stored>, Option<Together>),
    (network, links): (Arc<dyn Net>, LinkSettings),
    means: &Means,
) -> Result<(Role, Option<Forms>)> {
    let member = |keepers| Arc::new(Membership::new(keepers, network.clone(), links.clone(), world.planted()));
    match (metadata, settings.meta()) {
        (Some((metadata, disk)), _) => {
            let keeper = keeper_of((metadata, disk), directory, (network, links));
            Ok((Role::Keeper(Box::new(keeper)), None))
        }
        (None, MetaPlace::Node(keeper)) => Ok((Role::Member(member(Keepers::Alone(keeper.clone()))), None)),
        (None, MetaPlace::Several { keepers, .. }) => {
            let membership = member(Keepers::Several(keepers.clone()));
            let Some(Together { directory, formation }) = together else {
                return Ok((Role::Several(Box::new(Several::new(membership, None))), None));
            };
            let place = (settings.clone(), world.clone(), directory);
            let open = opens_keeper(place, (network.clone(), links.clone()), means.clone());
            let several = Several::new(membership, Some(formation));
            Ok((Role::Several(Box::new(several)), Some(Forms { open, links })))
        }
        (None, MetaPlace::Local) => unreachable!("it keeps the metadata"),
    }
}

/// Looks at the directory of a keeper, or makes it, before devices are made: one that is made after they were is no keeper's.
pub fn formation_of(
    found: Option<Found>,
    (settings, world): (&Settings, &Arc<dyn World>),
    (node, means): (NodeId, &Means),
) -> Result<Option<Together>> {
    let (Some(Found { directory, late }), MetaPlace::Several { keepers, own: Some(own) }) = (found, settings.meta())
    else {
        return Ok(None);
    };
    let given = Given {
        world: world.clone(),
        directory: directory.clone(),
        backend: settings.backend,
        keepers: keepers.clone(),
        own: *own,
        node,
        late,
        random: means.random.clone(),
    };
    Ok(Some(Together { directory, formation: Arc::new(Formation::open(given)?) }))
}

/// What is needed to begin to keep the metadata together with others.
pub struct Forms {
    pub open: keepers::Open,
    pub links: LinkSettings,
}

/// Opens the metadata that this node keeps together with others, when it is known who they are.
fn opens_keeper(
    (settings, world, directory): (Settings, Arc<dyn World>, PathBuf),
    (network, links): (Arc<dyn Net>, LinkSettings),
    means: Means,
) -> keepers::Open {
    Box::new(move |seating, own| {
        let lanes = Lanes::new(network.clone(), links.clone(), seating, own);
        let carrier: Arc<dyn Carrier> = lanes.clone();
        let kept = open_metadata(&settings, &world, &directory, &means, Some((seating.seats(own), carrier)))?;
        let keeper = keeper_of((kept.metadata, kept.disk), &directory, (network.clone(), links.clone()));
        Ok(keepers::Opened { keeper, lanes, engines: kept.engines, note: kept.note })
    })
}

fn keeper_of((metadata, disk): Stored, directory: &Path, (network, links): (Arc<dyn Net>, LinkSettings)) -> Keeper {
    let metadata_at = directory.parent().map(shown).unwrap_or_default();
    Keeper { metadata, metadata_at, disk, network, links, leading: RwLock::default() }
}

/// The metadata store of a node that keeps it.
pub struct Kept {
    pub metadata: Arc<Metadata>,
    pub disk: Arc<DiskStats>,
    pub engines: Vec<Ended>,
    pub note: Option<String>,
}

/// What a metadata store is opened with.
#[derive(Clone)]
pub struct Means {
    pub pool: Pool,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    pub loans: Arc<Loans>,
}

/// Where a node has what is its own, before its devices are opened.
pub struct Home {
    /// What it keeps of itself is there.
    pub directory: PathBuf,
    /// The metadata store in it, if it keeps one alone.
    pub kept: Option<Kept>,
    /// Where it keeps one together with others, if it does.
    pub found: Option<Found>,
}

/// A directory for the metadata that a node keeps together with others.
pub struct Found {
    directory: PathBuf,
    /// Devices of the node were in use before: one that is made only now is no keeper's.
    late: bool,
}

/// That directory, and how it becomes a keeper's.
pub struct Together {
    directory: PathBuf,
    formation: Arc<Formation>,
}

pub fn open_home(settings: &Settings, world: &Arc<dyn World>, means: &Means) -> Result<Home> {
    let (devices, said, world_of) = (&settings.devices, settings.metadata_dir.as_deref(), world.as_ref());
    let found = match settings.meta() {
        MetaPlace::Local => {
            let directory = metadata_directory(world_of, devices, said)?;
            let kept = Some(open_metadata(settings, world, &directory, means, None)?);
            return Ok(Home { directory, kept, found: None });
        }
        MetaPlace::Node(_) | MetaPlace::Several { own: None, .. } => None,
        MetaPlace::Several { own: Some(_), .. } => {
            let late = keepers::place::is_late(world_of, devices)?;
            Some(Found { directory: keepers::place::directory(world_of, devices, said)?, late })
        }
    };
    let directory = match settings.meta() {
        // One that kept it, and is taken off the list, goes on as a member.
        MetaPlace::Several { .. } => home::files_directory(world_of, devices)?,
        MetaPlace::Node(_) | MetaPlace::Local => home::member_directory(world_of, devices)?,
    };
    Ok(Home { directory, kept: None, found })
}

fn open_metadata(
    settings: &Settings,
    world: &Arc<dyn World>,
    directory: &Path,
    Means { pool, clock, random, loans }: &Means,
    several: Option<(Seats, Arc<dyn Carrier>)>,
) -> Result<Kept> {
    let (seats, carrier) = several.unzip();
    let opened = world.disk(directory, for_the_log(settings.backend), pool.clone())?;
    let files = metadata::Files::new(world.clone(), directory.to_path_buf(), settings.backend);
    let capacities = settings.devices.iter().map(|device| device.capacity.unwrap_or(u64::MAX));
    let sizes = world.meta_settings(capacities.fold(0, u64::saturating_add), random.clone());
    let sizes = meta::Settings { superuser: os::user::current().0, seats, ..sizes };
    let stats = Arc::new(DiskStats::default());
    let disk = MeteredDisk::wrap(opened.disk, stats.clone(), clock.clone());
    let (metadata, engines) =
        metadata::spawn((world.as_ref(), files), disk, sizes, clock.clone(), loans.clone(), carrier)
            .map_err(|error| error.during(shown(directory)))?;
    Ok(Kept { metadata, disk: stats, engines, note: opened.note })
}

/// Threads, if nobody asked for another way: one group of the log is on its way at a time, and a thread that waits for it hears of its end
/// sooner than a ring does, whose syncs are done by threads of the kernel (record 0188).
fn for_the_log(backend: Backend) -> Backend {
    if backend == Backend::Auto { Backend::Threads } else { backend }
}
