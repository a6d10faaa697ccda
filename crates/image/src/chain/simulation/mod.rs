//! A thousand hosts on a fake clock, run by the very state machines that drive real ones: every `Puller`, every `Serve`,
//! and the one `Coordinator`. Modelled are links (a rate up and a rate down for each host), the time to connect, processes
//! that die or freeze, and a network that is cut; not loss, and not the hosts' processors.

mod tests;
mod world;
