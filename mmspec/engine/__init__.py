"""The engine: rounds of propose, verify and commit, and what decides in them."""

from mmspec.engine.batching import run_batched as run_batched
from mmspec.engine.choosing import AcceptanceSampler as AcceptanceSampler
from mmspec.engine.choosing import Sampling as Sampling
from mmspec.engine.costs import BlockCosts as BlockCosts
from mmspec.engine.policy import AdaptivePolicy as AdaptivePolicy
from mmspec.engine.policy import FixedPolicy as FixedPolicy
from mmspec.engine.policy import Policy as Policy
from mmspec.engine.processing import Processors as Processors
from mmspec.engine.processing import register_block_form as register_block_form
from mmspec.engine.session import Scores as Scores
from mmspec.engine.session import Session as Session
from mmspec.engine.step_kind import SINGLE as SINGLE
from mmspec.engine.step_kind import StepKind as StepKind
from mmspec.engine.stopping import Stops as Stops
from mmspec.engine.work import Steps as Steps
from mmspec.engine.work import run_alone as run_alone
from mmspec.engine.work import stepwise as stepwise
