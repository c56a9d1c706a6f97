//! Answers to changes that clients of a gateway made, so that one which is asked again through another gateway is answered and not
//! repeated, nor one that is asked again at the same gateway after a restart. They are in the log with the change. The newest are kept;
//! of the others it is kept up to which number they are forgotten, and what comes later under such a number is refused.

pub mod format;

use crate::convert;
use crate::floors::Floors;
use crate::format::{AnswerRecord, FloorRecord};
use crate::key::{Key, after_prefix, wide_at};
use crate::reply::Reply;
use crate::request::{Asked, Caller, Request};
use crate::slots::Slots;
use crate::state::{State, missing};
use base::error::{Error, ErrorKind, Result};
use base::id::SessionId;
use base::limit::FORGOTTEN_CLIENTS_MAX;
use base::planted::Planted;
use prost::Message;

impl State {
    /// Reads which calls are remembered, and which were; `most` of them are. Done once, when the store is opened.
    pub fn load_answers(&mut self, most: usize) -> Result<()> {
        let mut calls = Vec::new();
        let prefix = [Key::Answer(0).ordinal()];
        self.layers.scan(&prefix, &after_prefix(&prefix), |_, value| {
            let record = AnswerRecord::decode(value).map_err(|_| missing("a readable remembered answer"))?;
            let client = u128::from(record.client_high) << 64 | u128::from(record.client_low);
            calls.push((record.order, Asked { client, call: record.call }));
            Ok(true)
        })?;
        self.answers = Slots::load(most, calls);
        let mut floors = Vec::new();
        let prefix = [Key::Floor(0).ordinal()];
        self.layers.scan(&prefix, &after_prefix(&prefix), |key, value| {
            let record = FloorRecord::decode(value).map_err(|_| missing("a readable number of a forgotten answer"))?;
            floors.push((record.order, wide_at(key, 1), record.call));
            Ok(true)
        })?;
        self.floors = Floors::load(FORGOTTEN_CLIENTS_MAX, floors, self.now);
        Ok(())
    }

    /// Answers `Answered`.
    pub fn answered(&self, session: SessionId, asked: Asked) -> Result<Reply> {
        let answer = self.answer_to(session, asked)?;
        Ok(Reply::Answered(answer.map(Box::new)))
    }

    fn answer_to(&self, session: SessionId, asked: Asked) -> Result<Option<Reply>> {
        let Some(slot) = self.answers.find(&asked) else { return Ok(None) };
        let record: AnswerRecord =
            self.layers.record(&Key::Answer(slot as u32))?.ok_or_else(|| missing("a remembered answer"))?;
        self.recall(session, record.reply.unwrap_or_default()).map(Some)
    }

    /// The remembered answer to a change that somebody's client asked before; `Invalid` if that was another question.
    fn answer_again(&self, session: SessionId, asked: Asked, change: &Request) -> Result<Option<Reply>> {
        match self.answer_to(session, asked)? {
            Some(reply) if !change.is_answered_by(&reply) => {
                let text = "a call of this client was another question before; nothing was done; number each call anew";
                Err(Error::new(ErrorKind::Invalid, text))
            }
            answer => Ok(answer),
        }
    }

    /// Does a change that a gateway's client asks for, unless it was done before.
    pub fn serve_asked(&mut self, caller: Caller, asked: Asked, change: &Request) -> Result<Reply> {
        if let Some(reply) = self.answer_again(caller.session, asked, change)? {
            return Ok(reply);
        }
        if change.is_remembered()
            && self.floors.is_late(asked.client, asked.call, self.now)
            && self.planted != Some(Planted::ForgottenCallRepeated)
        {
            let text = format!(
                "call {} comes after answers to later calls of this client were forgotten, so it may have been done long ago; nothing was \
                 done now: look at what is there",
                asked.call
            );
            // No kind that means something to who asks for a change of names.
            return Err(Error::new(ErrorKind::Protocol, text));
        }
        let reply = self.serve(caller, change)?;
        if change.is_remembered() {
            self.remember_answer(asked, &reply);
        }
        Ok(reply)
    }

    /// The transaction is committed: what it remembers can be found.
    pub fn answer_remembered(&mut self) {
        if let Some(asked) = self.answering.take() {
            if let Some(Asked { client, call }) = self.answers.forgets() {
                self.floors.raise(client, call, self.now);
            }
            self.answers.remember(asked);
        }
    }

    /// Remembers the answer in the transaction under way; `answer_remembered` follows when it is committed.
    fn remember_answer(&mut self, asked: Asked, reply: &Reply) {
        let (slot, order) = self.answers.next();
        let (client_high, client_low) = ((asked.client >> 64) as u64, asked.client as u64);
        let reply = Some(convert::reply_record(reply));
        let record = AnswerRecord { client_high, client_low, call: asked.call, order, reply };
        if let Some(forgotten) = self.answers.forgets() {
            self.raise_floor(forgotten);
        }
        self.put(&Key::Answer(slot as u32), &record);
        self.answering = Some(asked);
    }

    /// The same of the floor of the client whose answer is forgotten for it.
    fn raise_floor(&mut self, Asked { client, call }: Asked) {
        let Some(order) = self.floors.would_rise(client, call, self.now) else { return };
        for other in self.floors.outdated(client, self.now) {
            self.remove(&Key::Floor(other));
        }
        self.put(&Key::Floor(client), &FloorRecord { call, order });
    }
}
