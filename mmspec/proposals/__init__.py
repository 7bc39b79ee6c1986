"""Drafters: whatever proposes. None of them can change the output."""

from mmspec.proposals.acceptance_rate import AcceptanceRate as AcceptanceRate
from mmspec.proposals.base import Drafter as Drafter
from mmspec.proposals.base import Outlook as Outlook
from mmspec.proposals.base import Pick as Pick
from mmspec.proposals.base import Proposal as Proposal
from mmspec.proposals.base import deterministic as deterministic
from mmspec.proposals.base import fit_vocabulary as fit_vocabulary
from mmspec.proposals.bridge import VocabularyBridge as VocabularyBridge
from mmspec.proposals.ctc import Alphabet as Alphabet
from mmspec.proposals.ctc import CtcDrafter as CtcDrafter
from mmspec.proposals.ctc import Spelling as Spelling
from mmspec.proposals.early_exit import EarlyExitDrafter as EarlyExitDrafter
from mmspec.proposals.forward_variables import ForwardVariables as ForwardVariables
from mmspec.proposals.hypothesis import BRANCHES as BRANCHES
from mmspec.proposals.hypothesis import HypothesisDrafter as HypothesisDrafter
from mmspec.proposals.lazy import LazyDrafter as LazyDrafter
from mmspec.proposals.model import ModelDrafter as ModelDrafter
from mmspec.proposals.model import SameVocabulary as SameVocabulary
from mmspec.proposals.model import Vocabulary as Vocabulary
from mmspec.proposals.ngram import NgramDrafter as NgramDrafter
from mmspec.proposals.overlap import OverlapDrafter as OverlapDrafter
from mmspec.proposals.relay import RelayDrafter as RelayDrafter
from mmspec.proposals.switch import SwitchDrafter as SwitchDrafter
