"""The solvers of the package, by the names that the example uses."""

from meshfft.nonuniform.solvers import Iterate as Iterate
from meshfft.nonuniform.solvers import Operator as Operator
from meshfft.nonuniform.solvers import Split as Split
from meshfft.nonuniform.solvers import begin as begin
from meshfft.nonuniform.solvers import divergence as divergence
from meshfft.nonuniform.solvers import gradient as gradient
from meshfft.nonuniform.solvers import largest as largest
from meshfft.nonuniform.solvers import round_ as round_
from meshfft.nonuniform.solvers import split as split
from meshfft.nonuniform.solvers import step as step
