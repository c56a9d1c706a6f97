//! Nodes that are away for so long that their devices are given up, by themselves or by a person, and come back.

use super::ClusterDirector;
use super::member::State;
use crate::simulate::hardware::End;
use crate::simulate::oracle::{Broken, Check};
use crate::simulate::replicas;
use base::env::{Clock, Random};
use base::error::ErrorKind;
use client::{Client, Device};
use sim::random::SimRandom;
use std::collections::BTreeSet;
use std::time::Duration;

/// Who gives a device up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The leader does, because it is away.
    Itself,
    /// A person says so.
    Person,
}

/// Longest wait for devices to be given up by themselves; those with nothing that has copies are not.
const GIVEN_UP: Duration = Duration::from_secs(40);

/// Between two looks at whether they are: also where what they had shall find no place, before it does.
const LOOKS: [Duration; 2] = [Duration::from_millis(500), Duration::from_millis(10)];

impl ClusterDirector {
    /// A node is away for longer than devices are waited for: it ended, or stands still.
    pub(super) fn away_for_long(&mut self, number: usize) {
        if self.members[number].state != State::Runs {
            return;
        }
        self.count("node away for long");
        let pause = 8_000 + self.random.below(4_000);
        match self.random.below(3) {
            0 => self.end_for(number, End::Kill, pause),
            1 => self.end_for(number, End::PowerLoss, pause),
            _ => self.pause_for(number, pause),
        }
    }

    /// In some histories with copies a node goes away at the end: what it has gets copies elsewhere, without it; and when it comes back its devices
    /// count again, or were forgotten because a person gave them up.
    pub(super) async fn one_is_given_up(
        &mut self,
        random: &SimRandom,
        client: &Client,
        all_made: bool,
        by: By,
    ) -> Check<()> {
        if self.scene.replicas == 1 || !all_made || self.random.one_in(2) {
            return Ok(());
        }
        let may_go = |number: &usize| {
            // Of those that keep the metadata as many as have to may be left: not of one, nor of three of which one has lost what it kept.
            let may_be_away = self.kind.keepers > 1 && !self.has_lost_metadata;
            self.members[*number].state == State::Runs && (may_be_away || !self.kind.keeps(*number))
        };
        let numbers: Vec<usize> = (0..self.members.len()).filter(may_go).collect();
        let has_no_place = by == By::Itself && self.random.one_in(2);
        if numbers.is_empty() {
            return Ok(());
        }
        let number = numbers[self.random.below(numbers.len() as u64) as usize];
        let name = self.members[number].name.clone();
        self.end_for(number, if self.random.one_in(2) { End::Kill } else { End::PowerLoss }, 0);
        self.agenda.clear();
        let away = self.devices_of(client, &name).await?;
        if away.is_empty() || self.players.leaving() > 0 {
            // It is being taken out.
            return self.is_back(number, client).await;
        }
        let given_up = match by {
            By::Itself => self.are_given_up(client, &name, LOOKS[usize::from(has_no_place)]).await?,
            By::Person => {
                self.person_gives_up(client, &away).await?;
                true
            }
        };
        if has_no_place && given_up {
            return self.back_before_another(random, client, number).await;
        }
        // Where they are not, because too many would be, what they have counts still.
        let made = replicas::are_made(&self.scene, client, true).await? && given_up;
        let away: BTreeSet<u128> = away.iter().map(|device| device.device.value()).collect();
        replicas::are_alike(&self.scene, random, client, (made, away)).await?;
        self.is_back(number, client).await?;
        let made = replicas::are_made(&self.scene, client, false).await?;
        replicas::are_back(&self.scene, client, made).await?;
        replicas::are_alike(&self.scene, random, client, (made, BTreeSet::new())).await
    }

    /// Another node goes at once, so that what the first one had finds no place, or nothing that it could be copied from. The first one's devices count
    /// again while that one is away, and all copies are there when both are back.
    async fn back_before_another(&mut self, random: &SimRandom, client: &Client, number: usize) -> Check<()> {
        let may_go = |other: &usize| self.members[*other].state == State::Runs && !self.kind.keeps(*other);
        let others: Vec<usize> = (0..self.members.len()).filter(may_go).collect();
        let other = match others.len() as u64 {
            0 => None,
            count => Some(others[self.random.below(count) as usize]),
        };
        if let Some(other) = other {
            self.end_for(other, if self.random.one_in(2) { End::Kill } else { End::PowerLoss }, 0);
            self.agenda.clear();
            self.count("node away while another one is back");
        }
        self.start_member(number).await?;
        replicas::are_back(&self.scene, client, true).await?;
        if let Some(other) = other {
            self.start_member(other).await?;
        }
        self.all_are_there(client).await?;
        let made = replicas::are_made(&self.scene, client, false).await?;
        replicas::are_back(&self.scene, client, made).await?;
        replicas::are_alike(&self.scene, random, client, (made, BTreeSet::new())).await
    }

    async fn is_back(&mut self, number: usize, client: &Client) -> Check<()> {
        self.start_member(number).await?;
        self.all_are_there(client).await
    }

    async fn devices_of(&self, client: &Client, name: &str) -> Check<Vec<Device>> {
        let asked = self.scene.insist("finale", "devices_and_hosts", || client.devices_and_hosts()).await?;
        let devices = asked.map_err(|error| Broken(format!("devices: {error}")))?;
        let on_it = devices.into_iter().filter(|(_, host)| host.as_ref().is_some_and(|host| host.name == name));
        Ok(on_it.map(|(device, _)| device).collect())
    }

    /// The devices of a node are given up by themselves. One that has nothing of which another copy is elsewhere is not.
    /// False: not all of them are.
    async fn are_given_up(&self, client: &Client, name: &str, look: Duration) -> Check<bool> {
        let begun = self.scene.clock.now();
        while self.scene.clock.now().since(begun) < GIVEN_UP {
            let devices = self.devices_of(client, name).await?;
            if devices.iter().all(|device| device.lost) {
                self.scene.count_more("devices given up at the end", devices.len() as u64);
                return Ok(true);
            }
            tokio::time::sleep(look).await;
        }
        Ok(false)
    }

    async fn person_gives_up(&mut self, client: &Client, devices: &[Device]) -> Check<()> {
        for device in devices {
            let begun = self.scene.clock.now();
            loop {
                match self.scene.insist("finale", "device_lost", || client.give_up(device.device)).await? {
                    Ok(()) => break,
                    // That it is silent is not known yet.
                    Err(error) if error.kind() == ErrorKind::Busy && self.scene.clock.now().since(begun) < GIVEN_UP => {
                        tokio::time::sleep(Duration::from_millis(500)).await;
                    }
                    Err(error) => return Err(Broken(format!("device lost {}: {error}", device.place))),
                }
            }
            self.count("device given up by a person");
        }
        Ok(())
    }
}
