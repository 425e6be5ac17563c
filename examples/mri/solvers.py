"""The solvers of the package, by the names that the example uses."""

from meshfft.nufft.solvers import Iterate as Iterate
from meshfft.nufft.solvers import Operator as Operator
from meshfft.nufft.solvers import Split as Split
from meshfft.nufft.solvers import begin as begin
from meshfft.nufft.solvers import divergence as divergence
from meshfft.nufft.solvers import gradient as gradient
from meshfft.nufft.solvers import largest as largest
from meshfft.nufft.solvers import round_ as round_
from meshfft.nufft.solvers import split as split
from meshfft.nufft.solvers import step as step
