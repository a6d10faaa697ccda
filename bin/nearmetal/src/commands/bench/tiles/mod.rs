//! `nearmetal bench tiles`: guests that serve, one tile more until the machine is full.

mod limits;

use std::path::PathBuf;
use std::str::FromStr;

use nearmetal_host::{HostFs, files};
use nearmetal_load::{Scale, TileRole};
use nearmetal_measure::{Conditions, Experiment, MOST_GUESTS_OF_TILES, Member, TileWay, TilesRequest};
use nearmetal_results::{Environment, RoleLimits};

use super::clones::CloneArgs;
use super::keep::KeepArgs;
use super::loads_image::needed;
use super::measuring::need_root;
use super::planned::PlanArgs;
use super::rounds::percent;
use crate::exit_status::{ExitStatus, WrongUse};
use crate::printer::Printer;

/// How much smaller a lab's tile is: its processors are software.
const SCALE_OF_A_LAB: f64 = 0.01;

/// Find out how many tiles of VMs this host holds before an answer comes too late
///
/// A tile is one VM for each part of a small company: web, mail, db, app, infra (files) and idle. Each serves real programs of
/// the loads image, and is asked a fixed number of requests a second from PUs that no VM has. One tile is measured, then two,
/// and so on, until in more than half of the samples a part answers too late, or one more tile does not raise the score; once
/// with all VMs on a bridge, and once with a virtual function of the port for each.
///
/// A tile scores 100 if it answers all that it is asked: the mean over its parts of what was answered, added up over the tiles.
/// That score is nearmetal's own. All guests are clones, placed as planned; the VMs themselves stay as they are. No request
/// crosses a wire, so no second machine is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  nearmetal bench tiles --tile web=w1,mail=m1,db=d1,idle=i1 --tile web=w2,mail=m2,db=d2,idle=i2 --port enp57s0 --pause
  nearmetal bench tiles --tile web=w1,idle=i1 --tile web=w2,idle=i2 --port enp57s0 --ways bridge --scale 0.5 --pause")]
pub(super) struct Args {
    /// The VMs of one tile, such as web=w1,mail=m1,db=d1,idle=i1; once for each tile, each with the same parts
    #[arg(long = "tile", value_name = "PART=VM,…", required = true)]
    tiles: Vec<Tile>,
    /// The port that all VMs share; nobody may use it meanwhile, so it must have no address
    #[arg(long, value_name = "INTERFACE")]
    port: String,
    /// How VMs reach the port: bridge, or vf, for which it needs a virtual function for each VM
    #[arg(long, value_name = "WAY,…", value_delimiter = ',', default_value = "bridge,vf")]
    ways: Vec<TileWay>,
    /// How much a tile holds and is asked: 0.001 to 100 times the usual [default: 1; 0.01 in a lab]
    #[arg(long, value_name = "FACTOR", value_parser = scale)]
    scale: Option<Scale>,
    /// Take fewer and shorter samples
    #[arg(long)]
    quick: bool,
    /// Seconds of one sample [default: 60, with --quick 20]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: Option<u32>,
    /// Seconds of load before each sample [default: 15, with --quick 5]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(0..=3600))]
    ramp: Option<u32>,
    /// Samples of each number of tiles in each way [default: 3, with --quick 2]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=100))]
    samples: Option<u32>,
    /// How soon each part has to answer, in place of the usual limits: a TOML file with a table for each part, such as
    /// [web] with within = [[0.95, 3000], [0.99, 5000]] (95 % within 3000 ms, and 99 % within 5000 ms)
    #[arg(long, value_name = "FILE")]
    limits: Option<PathBuf>,
    /// Percent of a sample's time during which all must have been asked
    #[arg(long, value_name = "PERCENT", default_value_t = 80.0, value_parser = percent)]
    overlap: f64,
    /// Seed of the order and of the requests; the same seed gives the same
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    plan: PlanArgs,
    #[command(flatten)]
    clones: CloneArgs,
    #[command(flatten)]
    keep: KeepArgs,
}

/// `web=w1,mail=m1`: who plays which part.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tile(Vec<(TileRole, String)>);

impl FromStr for Tile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts: Vec<(TileRole, String)> = Vec::new();
        for part in text.split(',') {
            let (role, guest) = part
                .split_once('=')
                .filter(|(_, guest)| !guest.is_empty())
                .ok_or_else(|| format!("`{part}` is not a part of a tile and its VM: write it as web=w1"))?;
            let role: TileRole = role.parse()?;
            if parts.iter().any(|(other, _)| *other == role) {
                return Err(format!("a tile has two VMs for `{role}`: name one"));
            }
            parts.push((role, guest.to_owned()));
        }
        // Those that others ask come first.
        let place = |role: &TileRole| TileRole::ALL.iter().position(|other| other == role);
        parts.sort_by_key(|(role, _)| place(role));
        Ok(Self(parts))
    }
}

impl Tile {
    fn roles(&self) -> Vec<TileRole> {
        self.0.iter().map(|(role, _)| *role).collect()
    }
}

fn scale(text: &str) -> Result<Scale, String> {
    let number: f64 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    Scale::try_from(number)
}

/// Runs the command.
pub(super) fn tiles(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    args.keep.run(&asked(args)?, printer)
}

/// What it is to measure.
pub(super) fn asked(args: &Args) -> anyhow::Result<Experiment> {
    let (roles, names) = args.named()?;
    let limits = args.limits(&roles)?;
    let journal = args.plan.journal();
    let planned = names.iter().map(|name| args.plan.pinned(name, &journal)).collect::<anyhow::Result<Vec<_>>>()?;
    let member = |(name, planned): (&&String, &super::planned::Planned)| Member {
        guest: (*name).clone(),
        placement: planned.placement.clone(),
        xml_planned: planned.change.xml_after.clone(),
    };
    let members: Vec<Member> = names.iter().zip(&planned).map(member).collect();
    need_root("starts guests and makes a network for them", "")?;
    let fs = HostFs::live();
    let conditions = args.clones.conditions(args.seed, &fs, &journal)?;
    let conditions = Conditions { loads: needed(roles.iter().any(|role| role.needs_loads_image()))?, ..conditions };
    let conditions = match planned.first() {
        Some(first) => args.keep.kept(conditions, first, &journal),
        None => conditions,
    };
    let usual = match conditions.environment {
        Environment::Lab { .. } => Scale::try_from(SCALE_OF_A_LAB).unwrap_or(Scale::ONE),
        Environment::Silicon => Scale::ONE,
    };
    let (seconds, ramp, samples) = if args.quick { (20, 5, 2) } else { (60, 15, 3) };
    let request = TilesRequest {
        roles,
        members,
        ways: args.ways.clone(),
        port: args.port.clone(),
        scale: args.scale.unwrap_or(usual),
        seconds: args.seconds.unwrap_or(seconds),
        ramp: args.ramp.unwrap_or(ramp),
        samples: args.samples.unwrap_or(samples),
        limits,
        least_overlap: args.overlap / 100.0,
        conditions,
    };
    Ok(Experiment::Tiles(Box::new(request)))
}

impl Args {
    /// The parts of every tile, and the VMs tile after tile.
    fn named(&self) -> Result<(Vec<TileRole>, Vec<&String>), WrongUse> {
        let roles = self.tiles.first().map(Tile::roles).unwrap_or_default();
        if let Some((number, tile)) = self.tiles.iter().enumerate().find(|(_, tile)| tile.roles() != roles) {
            let words = |roles: &[TileRole]| roles.iter().map(|role| role.word()).collect::<Vec<_>>().join(", ");
            return Err(WrongUse(format!(
                "tile 1 has {} and tile {} has {}: name the same parts for each, so that a tile is worth as much as another",
                words(&roles),
                number + 1,
                words(&tile.roles())
            )));
        }
        let names: Vec<&String> = self.tiles.iter().flat_map(|tile| tile.0.iter().map(|(_, guest)| guest)).collect();
        if names.len() > MOST_GUESTS_OF_TILES {
            let (named, most) = (names.len(), MOST_GUESTS_OF_TILES);
            return Err(WrongUse(format!("{named} VMs are named, and {most} at once is the most: leave tiles out")));
        }
        if let Some((_, name)) = names.iter().enumerate().find(|(number, name)| names[..*number].contains(name)) {
            return Err(WrongUse(format!("`{name}` is named twice: name each VM once")));
        }
        Ok((roles, names))
    }

    /// The usual limits of these parts, or those of a file in their place.
    fn limits(&self, roles: &[TileRole]) -> anyhow::Result<Vec<RoleLimits>> {
        let mut limits = RoleLimits::usual();
        if let Some(path) = &self.limits {
            let text =
                files::read_to_string(path).map_err(|error| WrongUse(format!("{:#}", anyhow::Error::from(error))))?;
            for of in
                limits::parse(&path.display().to_string(), &text).map_err(|errors| WrongUse(errors.to_string()))?
            {
                limits.retain(|usual| usual.role != of.role);
                limits.push(of);
            }
        }
        limits.retain(|of| roles.contains(&of.role));
        limits.sort_by_key(|of| roles.iter().position(|role| *role == of.role));
        Ok(limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tile_is_read_in_the_order_in_which_its_servers_start() {
        let tile: Tile = "idle=i1,web=w1,db=d1".parse().unwrap();
        let read: Vec<(&str, &str)> = tile.0.iter().map(|(role, guest)| (role.word(), guest.as_str())).collect();
        assert_eq!(read, [("db", "d1"), ("web", "w1"), ("idle", "i1")]);
        for (text, words) in [
            ("web", "as web=w1"),
            ("web=", "as web=w1"),
            ("wab=w1", "`wab`"),
            ("web=w1,web=w2", "two VMs for `web`"),
            ("", "as web=w1"),
        ] {
            let why = text.parse::<Tile>().unwrap_err();
            assert!(why.contains(words), "{text}: {why}");
        }
    }

    #[test]
    fn a_scale_is_a_number_within_its_limits() {
        assert_eq!(scale("0.01").map(Scale::get), Ok(0.01));
        assert!(scale("much").is_err() && scale("0").is_err() && scale("nan").is_err());
    }
}
