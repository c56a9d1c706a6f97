//! Answers to changes that clients of a gateway made, so that one which is asked again through another gateway is answered and not
//! repeated. They are in the log with the change. A store of one node alone remembers none: its gateway does.

use crate::convert;
use crate::format::AnswerRecord;
use crate::key::{Key, after_prefix};
use crate::reply::Reply;
use crate::request::{Asked, Caller, Request};
use crate::slots::Slots;
use crate::state::{State, missing};
use base::error::{Error, ErrorKind, Result};
use base::limit::REMEMBERED_ANSWERS;
use prost::Message;

impl State {
    /// Reads which calls are remembered. Done once, when the store is opened.
    pub fn load_answers(&mut self) -> Result<()> {
        let mut calls = Vec::new();
        let prefix = [Key::Answer(0).ordinal()];
        self.layers.scan(&prefix, &after_prefix(&prefix), |_, value| {
            let record = AnswerRecord::decode(value).map_err(|_| missing("a readable remembered answer"))?;
            let client = u128::from(record.client_high) << 64 | u128::from(record.client_low);
            calls.push((record.order, Asked { client, call: record.call }));
            Ok(true)
        })?;
        self.answers = Slots::load(REMEMBERED_ANSWERS, calls);
        Ok(())
    }

    /// Answers `Answered`.
    pub fn answered(&self, asked: Asked) -> Result<Reply> {
        let answer = self.answer_to(asked)?;
        Ok(Reply::Answered(answer.map(Box::new)))
    }

    fn answer_to(&self, asked: Asked) -> Result<Option<Reply>> {
        let Some(slot) = self.answers.find(&asked) else { return Ok(None) };
        let record: AnswerRecord =
            self.layers.record(&Key::Answer(slot as u32))?.ok_or_else(|| missing("a remembered answer"))?;
        self.recall(record.reply.unwrap_or_default()).map(Some)
    }

    /// The remembered answer to a change that somebody's client asked before; `Invalid` if that was another question.
    fn answer_again(&self, asked: Asked, change: &Request) -> Result<Option<Reply>> {
        match self.answer_to(asked)? {
            Some(reply) if !change.is_answered_by(&reply) => {
                let text = "a call of this client was another question before; nothing was done; number each call anew";
                Err(Error::new(ErrorKind::Invalid, text))
            }
            answer => Ok(answer),
        }
    }

    /// Does a change that a gateway's client asks for, unless it was done before.
    pub fn serve_asked(&mut self, caller: Caller, asked: Asked, change: &Request) -> Result<Reply> {
        if let Some(reply) = self.answer_again(asked, change)? {
            return Ok(reply);
        }
        let reply = self.serve(caller, change)?;
        if change.is_remembered() && self.nodes.count() > 1 {
            self.remember_answer(asked, &reply);
        }
        Ok(reply)
    }

    /// The transaction is committed: what it remembers can be found.
    pub fn answer_remembered(&mut self) {
        if let Some(asked) = self.answering.take() {
            self.answers.remember(asked);
        }
    }

    /// Remembers the answer in the transaction under way; `answer_remembered` follows when it is committed.
    fn remember_answer(&mut self, asked: Asked, reply: &Reply) {
        let (slot, order) = self.answers.next();
        let (client_high, client_low) = ((asked.client >> 64) as u64, asked.client as u64);
        let reply = Some(convert::reply_record(reply));
        let record = AnswerRecord { client_high, client_low, call: asked.call, order, reply };
        self.put(&Key::Answer(slot as u32), &record);
        self.answering = Some(asked);
    }
}
