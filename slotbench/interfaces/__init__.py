"""What components are, what passes between them, and what commands and callbacks ask of a task.

Sizes flow forward once: the data knows its `DataSpec`; an encoder is built from the input's `VideoSpec` and exposes
`token_spec`; a core is built from that and exposes `slot_spec`; a decoder is built from that and from the target's
`VideoSpec`.
"""

from slotbench.interfaces.aggregations import (
    Aggregation,
    StagedAggregation,
    SummedAggregation,
    TokenSums,
    gather_values,
    sums_suffice,
    visible_tokens,
)
from slotbench.interfaces.batch import VideoBatch, check_unit_range, to_unit_range, unit_frames
from slotbench.interfaces.clips import DescribedClips, Piece, View, WholeVideos
from slotbench.interfaces.cores import (
    AttentionKind,
    CoreOutput,
    CoreStep,
    GenerativeCore,
    RecurrentCore,
    State,
    TemporalCore,
    WindowedCore,
    detach_state,
    map_state,
    unbind_time,
)
from slotbench.interfaces.decoders import AutoregressiveDecoder, Decoded, Decoder
from slotbench.interfaces.encoders import CodeEncoder, CodeTables, Encoder
from slotbench.interfaces.objectives import Objective, Scene
from slotbench.interfaces.reports import (
    AnswerScores,
    Headline,
    Predictor,
    Reasoner,
    Recording,
    Reporter,
    Segmentation,
    Segmenter,
    rounded_shares,
)
from slotbench.interfaces.specs import DataSpec, PartError, SlotSpec, TokenSpec, VideoSpec
from slotbench.interfaces.tokenizers import Tokenized, Tokenizer

__all__ = [
    "Aggregation",
    "AnswerScores",
    "AttentionKind",
    "AutoregressiveDecoder",
    "CodeEncoder",
    "CodeTables",
    "CoreOutput",
    "CoreStep",
    "DataSpec",
    "Decoded",
    "Decoder",
    "DescribedClips",
    "Encoder",
    "GenerativeCore",
    "Headline",
    "Objective",
    "PartError",
    "Piece",
    "Predictor",
    "Reasoner",
    "Recording",
    "RecurrentCore",
    "Reporter",
    "Scene",
    "Segmentation",
    "Segmenter",
    "SlotSpec",
    "StagedAggregation",
    "State",
    "SummedAggregation",
    "TemporalCore",
    "TokenSpec",
    "TokenSums",
    "Tokenized",
    "Tokenizer",
    "VideoBatch",
    "VideoSpec",
    "View",
    "WholeVideos",
    "WindowedCore",
    "check_unit_range",
    "detach_state",
    "gather_values",
    "map_state",
    "rounded_shares",
    "sums_suffice",
    "to_unit_range",
    "unbind_time",
    "unit_frames",
    "visible_tokens",
]
